"""A run of physics: a spec goes in, a transition with its error and its evidence comes out.

from metalforge import campaign

found = campaign.run("tiny", "DIR")        # or a CampaignSpec, or a TOML file
print(found)                               # campaign.load("DIR") gives the same, from the journal
campaign.command("DIR", "pause")           # to one that runs in another process
"""

from typing import TYPE_CHECKING

from metalforge.core.on_demand import on_demand

if TYPE_CHECKING:
    from .calling import command
    from .extending import Extension
    from .results import Results, load, resume, run
    from .running.campaign import Campaign
    from .spec import PRESETS, Budget, CampaignSpec, Running, Screening, Steering, WarmUpPolicy, load_spec, preset
    from .steerers import SystemScan, register_steerer, steerer_names
    from .theory import Theory, TheoryWords, register_theory

__all__ = [
    "PRESETS",
    "Budget",
    "Campaign",
    "CampaignSpec",
    "Extension",
    "Results",
    "Running",
    "Screening",
    "Steering",
    "SystemScan",
    "Theory",
    "TheoryWords",
    "WarmUpPolicy",
    "command",
    "load",
    "load_spec",
    "preset",
    "register_steerer",
    "register_theory",
    "resume",
    "run",
    "steerer_names",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
