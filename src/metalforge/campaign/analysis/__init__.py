"""The physics of a campaign: chains of measurements go in, result with its error comes out."""
