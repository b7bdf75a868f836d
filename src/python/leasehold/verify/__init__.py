"""Does my site keep what Leasehold promises? Clients use it while you break it; then a judge reads what they saw.

    leasehold-verify --server host1:7420,host2:7420 --seconds 600 --report verify.html

load.py says what the clients do, history.py what must not be seen, report.py draws what was.
"""
