"""The physics of a campaign: chains of measurements go in, beta_c with its error comes out."""
