"""What independent codes measured, with their errors."""

# An independent code (yang-mills, 1 heat bath + 4 overrelaxation sweeps an update, 2000 measurements), 8^4:
# beta: (plaquette, error, <|L|>, error)
TABLE = {
    5.5: (0.496988, 0.000185, 0.01323, 0.00016),
    5.7: (0.549220, 0.000173, 0.01457, 0.00017),
    6.0: (0.594173, 0.000092, 0.03018, 0.00120),
}
# The same code on 8^3 x 4, 14,500 measurements: beta: (P, error, <|L|>, error, chi, error)
TRANSITION = {
    5.67: (0.54439, 0.00018, 0.0705, 0.0022, 0.932, 0.044),
    5.68: (0.54780, 0.00019, 0.0948, 0.0028, 1.233, 0.031),
    5.69: (0.55036, 0.00022, 0.1055, 0.0035, 1.363, 0.037),
    5.705: (0.55417, 0.00019, 0.1288, 0.0028, 1.274, 0.066),
}
# MILC 7 (su3_hmc_naive), four flavours at beta 5.2, am 0.1: plaquette, (1/V) tr D^-1 and Re L with their errors.
PLAQUETTE, CONDENSATE, LOOP = (0.5353, 0.0008), (0.4759, 0.0036), (0.1908, 0.0239)
