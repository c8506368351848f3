"""A graph as text for a terminal and as Mermaid for a page."""

from .graph import Edge, PipelineGraph
from .stages import is_source

__all__ = ["to_mermaid", "to_text"]


def _edge_label(edge: Edge) -> str:
    tokens = f", {edge.tokens} tokens" if edge.tokens is not None else ""
    return ("default" if edge.channel is None else edge.channel.label) + tokens


def to_text(graph: PipelineGraph) -> str:
    """Return the graph in the order data flows: each stage, where it runs, and its edges."""
    graph = graph.resolved()
    lines = [f"{graph.name}: {len(graph.stages)} stages, {len(graph.edges)} edges"]
    for name in [n for group in graph.components() for n in group]:
        spec = graph.stages[name]
        notes = [f"on {spec.substrate_name}"] if spec.substrate_name else []
        notes += ["source"] if is_source(spec.stage) else []
        notes += ["droppable"] if spec.config.droppable else []
        notes += ["process"] if spec.config.isolation == "process" else []
        lines.append(name + (f"  ({', '.join(notes)})" if notes else ""))
        for edge in graph.edges:
            if edge.source == name:
                arrow = "~~>" if edge.feedback else "-->"
                lines.append(f"  {arrow} {edge.target}  [{_edge_label(edge)}]")
    return "\n".join(lines)


def to_mermaid(graph: PipelineGraph) -> str:
    """Return the graph as a Mermaid flowchart; feedback edges are dotted."""
    graph = graph.resolved()
    number = {name: f"s{i}" for i, name in enumerate(graph.stages)}
    lines = ["flowchart LR"]
    for name, spec in graph.stages.items():
        where = f"<br/>{spec.substrate_name}" if spec.substrate_name else ""
        lines.append(f'  {number[name]}["{name}{where}"]')
    for edge in graph.edges:
        arrow = "-.->" if edge.feedback else "-->"
        label = _edge_label(edge).replace('"', "'").replace("|", "/")
        lines.append(f'  {number[edge.source]} {arrow}|"{label}"| {number[edge.target]}')
    return "\n".join(lines)
