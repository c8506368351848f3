"""A run of physics: a spec goes in, a transition with its error and its evidence comes out.

from metalforge import campaign

found = campaign.run("tiny", "DIR")        # or a CampaignSpec, or a TOML file
print(found)                               # campaign.load("DIR") gives the same, from the journal
campaign.command("DIR", "pause")           # to one that runs in another process
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .analysis.crossing import Crossing, crossing_of
    from .analysis.curve import TransitionCurve, curve
    from .analysis.evidence import Evidence, PlannedPoints, at_least, at_most
    from .analysis.selection import PointSeries
    from .analysis.smooth import SmoothCurve, level_errors
    from .analysis.transition import locate
    from .calling import FIELDS, MOST_BYTES, Command, ControlError, command, send
    from .chain_log import ChainLog
    from .extending import Extension, asked_beside, couplings_of, system_of
    from .findings import ERROR_ITEM, Analysis, finding
    from .replanning import Counterfactual, counterfactual
    from .report import sections
    from .report.drawing import COLOURS, GREY, Drawn
    from .report.figure_data import (
        ChainHistory,
        histogram_edges,
        memory_of,
        pipeline_figure,
        plane_of,
        silicon_figure,
        supports_of,
    )
    from .report.figures import (
        draw_curves,
        draw_histories,
        draw_means,
        draw_systems,
        draw_transition,
    )
    from .report.figures_of_evidence import Panels, ReportedPeak, draw_evidence
    from .report.html import Raw, box, details, heading, items, note, paragraph, section, table
    from .report.parts import (
        ComparedCampaign,
        Figures,
        PeakReport,
        PublishedCurve,
        PublishedPlace,
        Report,
        TransitionFigure,
        TransitionPoint,
        TransitionSystem,
        compared_campaign,
        compared_section,
    )
    from .report.result import FEWEST_ROWS, Results, SystemResult
    from .report.spec_text import spec_text
    from .report.words import (
        ENDINGS,
        budget_text,
        duration,
        estimate_text,
        found_text,
        item_text,
        needed_text,
        number_text,
        one_line,
        system_name,
        system_text,
    )
    from .results import load, resume, run
    from .running.acceptance import ACCEPTANCE, LEAST_ACCEPTANCE, TRIED_IN_WARMUP, acceptance_of
    from .running.batches import Faults, PointBatch
    from .running.campaign import Campaign
    from .running.lanes import ChainLane, Machines, StopFlag, check_room, engine_here, lanes_here
    from .running.monitor import WarmUpVerdict, is_due
    from .running.orders import Answer, Snapshot, stage_of
    from .running.point import NOTHING, PointChain, Tools, Unsound
    from .spec import (
        Budget,
        CampaignSpec,
        Running,
        Screening,
        Steering,
        WarmUpPolicy,
        converted,
        load_spec,
        preset,
        presets,
    )
    from .state import CampaignState, Fold, fold
    from .steerers import ANY, SystemScan, register_steerer, steerer_names
    from .store.chain_files import chain_files
    from .store.directory import JOURNAL, DirectoryLock, may_be_in_use
    from .store.reading import JournalFollower, begun
    from .store.records import Assigned, Commanded, Decided, Interrupted, Record, Rows
    from .theory import (
        Floats,
        OrderParameter,
        SizeLaw,
        Start,
        System,
        Target,
        Theory,
        TheoryWords,
        WideWork,
        register_theory,
    )
    from .view import BudgetView, ChainView, DecisionView, SystemView, View, decision_view, view_of

__all__ = [
    "Budget",
    "Campaign",
    "CampaignSpec",
    "Extension",
    "PointSeries",
    "Results",
    "Running",
    "Screening",
    "Steering",
    "SystemScan",
    "Theory",
    "TheoryWords",
    "WarmUpPolicy",
    "command",
    "curve",
    "load",
    "load_spec",
    "locate",
    "preset",
    "presets",
    "register_steerer",
    "register_theory",
    "resume",
    "run",
    "steerer_names",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
