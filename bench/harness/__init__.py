"""What bench/run.py is made of: plan (what is measured), peers (how each is started), measure (one
run of one case), results (statistics and files), page (the HTML page)."""
