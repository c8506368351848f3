"""Exact integrals over SU(3) with weight exp(beta Re tr U / 3), by the trapezoid rule over eigenangles.

The Haar measure on eigenangles is |Vandermonde|^2; the integrand is periodic and analytic, so the rule converges faster
than any power of the number of points.
"""

import numpy as np


def moments(beta, powers=(1, 2), points=192):
    """<p^k> with p = Re tr U / 3."""
    theta = 2 * np.pi * np.arange(points) / points
    a, b = np.meshgrid(theta, theta)
    angles = np.stack([a, b, -a - b])
    z = np.exp(1j * angles)
    measure = np.abs((z[0] - z[1]) * (z[0] - z[2]) * (z[1] - z[2])) ** 2
    p = np.cos(angles).sum(axis=0) / 3
    weight = measure * np.exp(beta * p)
    return tuple(float(np.sum(weight * p**k) / np.sum(weight)) for k in powers)
