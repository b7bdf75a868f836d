"""Histories for test_check_history.py: priorities of requests that wait, and requests to hand over."""

GOOD = {
    'a priority that comes soon enough': '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60 - - - 0
        3 queue k C 2 60 - - - 1
        4 end k A
        4 grant k C 11 60
        5 end k C
        5 grant k B 12 60''',
    'a newcomer with a priority': '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60
        3 end k A
        3.9 grant k C 11 60 - - - 1''',
    'one behind the first of its priority, whose clock was late': '''
        0 ageing - - - 2
        1 grant k A 10 31
        3.5 queue k B 1 60 - - - 1
        2 queue k C 2 60 - - - 1
        3 queue k D 3 60 - - - 2
        4 end k A
        4 grant k D 11 60''',
    'two of one decision, whose tokens are in the order of their tickets': '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60 c - - 0
        3 queue k C 2 60 c - - 1
        4 end k A
        4 grant k B 11 60 c 1
        4 grant k C 12 60 c 1''',
    'three of one decision': '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60 c - - 0
        2 queue k C 2 60 c - - 0
        2 queue k D 3 60 c - - 1
        4 end k A
        4 grant k B 11 60 c 1
        4 grant k C 12 60 c 1
        4 grant k D 13 60 c 1''',
    'a request that is heard, refused, and made again': '''
        1 grant k A 10 31
        1 hear k A
        2 ask k - 10
        3 hear k A 10
        4 refuse k A
        5 hear k A
        6 ask k - 10
        7 hear k A 10
        8 end k A
        8 grant k B 11 31
        9 hear k B''',
}

BROKEN = {
    'a priority that comes too late': ('overtaking', '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60
        4.1 queue k C 2 60 - - - 1
        5 end k A
        5 grant k C 11 60'''),
    'a priority that is passed over': ('overtaking', '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60
        3.9 queue k C 2 60 - - - 1
        5 end k A
        5 grant k B 11 60'''),
    'two decisions, of which the first passes over a priority': ('overtaking', '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60 c - - 0
        3 queue k C 2 60 c - - 1
        4 end k A
        4 grant k B 11 60 c 1
        4.1 grant k C 12 60 c 1'''),
    'two of one decision, which passes over a priority': ('overtaking', '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60 c - - 0
        2 queue k C 2 60 c - - 0
        2 queue k D 3 60 c - - 1
        4 end k A
        4 grant k B 11 60 c 1
        4 grant k C 12 60 c 1
        4.1 grant k D 13 60 c 1'''),
    'a newcomer with too small a priority': ('overtaking', '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60
        3 end k A
        4.1 grant k C 11 60 - - - 1'''),
    'a newcomer with the priority of a waiter': ('overtaking', '''
        0 ageing - - - 2
        1 grant k A 10 31
        2 queue k B 1 60 - - - 1
        3 end k A
        3 grant k C 11 60 - - - 1'''),
    'a request that is lost': ('request', '''
        1 grant k A 10 31
        2 ask k - 10
        3 hear k A'''),
    'a request that nobody made': ('request', '''
        1 grant k A 10 31
        3 hear k A 10'''),
    'a request to the holder before': ('request', '''
        1 grant k A 10 31
        2 ask k - 10
        3 end k A
        3 grant k B 11 31
        4 hear k B 10'''),
}
