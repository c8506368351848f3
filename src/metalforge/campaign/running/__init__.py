"""A campaign as a streaming graph: a spec goes in, chains run, decisions are journaled, results come out."""
