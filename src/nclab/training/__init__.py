"""Making networks: data sets, models, fleets of networks trained together, and sweeps."""
