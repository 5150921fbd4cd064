/*
The elected mover of delayed messages: transport/delayed.py and move_due_messages. Two processes with a mover each. Messages 0
and 1 belong to the queue and become due in this order; FORWARDED names another queue, which may not exist.

Broken variants: NO_ELECTION, DELETED_IN_FIRST_TRANSACTION, ELECTED_BY_ROW.
*/
#include "common.pml"

#define MESSAGES 3
#ifndef COUNT
#define COUNT 2   /* p_count: how many messages one call moves at most */
#endif
#define FORWARDED 2
#define NOBODY 0
#define MINE(w) ((w) + 1)

/* where a message is; while a transaction is open, `taken` says whose */
#define DELAYED 0
#define QUEUE 1
#define DESTINATION 2
#define ERROR_QUEUE 3
#define NOWHERE 4

byte place[MESSAGES];
byte taken[MESSAGES];
bool due[MESSAGES];
byte elected;            /* whose transaction has the advisory lock */
byte last;               /* the last row version in the queue, which INSERT assigns */
byte version[MESSAGES];  /* of the message's row in the queue */
bool destination_exists;

#define ENDED(m) (place[m] == QUEUE || place[m] == DESTINATION || place[m] == ERROR_QUEUE)

#define GOAL (ENDED(0) && ENDED(1) && ENDED(FORWARDED))

inline roll_back(w) {
    if
    :: taken[0] == MINE(w) -> taken[0] = NOBODY
    :: else
    fi;
    if
    :: taken[1] == MINE(w) -> taken[1] = NOBODY
    :: else
    fi;
    if
    :: taken[2] == MINE(w) -> taken[2] = NOBODY
    :: else
    fi;
    if
    :: elected == MINE(w) -> elected = NOBODY
    :: else
    fi
}

/* the statement's DELETE: due messages that nobody has locked, in the order of due times */
inline take(w) {
    if
    :: place[0] == DELAYED && due[0] && taken[0] == NOBODY -> taken[0] = MINE(w)
    :: else
    fi;
    if
    :: place[1] == DELAYED && due[1] && taken[1] == NOBODY && COUNT == 2 -> taken[1] = MINE(w)
    :: place[1] == DELAYED && due[1] && taken[1] == NOBODY && COUNT == 1 && taken[0] != MINE(w) -> taken[1] = MINE(w)
    :: else
    fi
}

/* its INSERT */
inline number(w, m) {
    if
    :: taken[m] == MINE(w) -> last++; version[m] = last
    :: else
    fi
}

inline arrive(w, m, where) {
    if
    :: taken[m] == MINE(w) -> assert(!ENDED(m)); place[m] = where; taken[m] = NOBODY
    :: else
    fi
}

/* a message that becomes visible is not before one that was due earlier and is visible already */
#define IN_ORDER (place[0] != QUEUE || place[1] != QUEUE || version[0] < version[1])

proctype mover(byte w) {
    bool refused;   /* forward_each has seen this message fail */
#ifdef ELECTED_BY_ROW
    byte kept;      /* the row stays, because the dead mover cannot delete it */
#endif
next:
    do
    :: GOAL -> break
#ifdef NO_ELECTION
    :: d_step { due[0] || due[1] || due[2] -> take(w) }
#else
    :: d_step { elected == NOBODY && (due[0] || due[1] || due[2]) -> elected = MINE(w); take(w) }
#endif
#ifdef DELETED_IN_FIRST_TRANSACTION
       STEP(if :: taken[0] == MINE(w) -> place[0] = NOWHERE :: else fi; if :: taken[1] == MINE(w) -> place[1] = NOWHERE :: else fi)
#endif
       STEP(number(w, 0); number(w, 1))
       STEP(arrive(w, 0, QUEUE); arrive(w, 1, QUEUE); assert(IN_ORDER); roll_back(w))
       if
       :: due[FORWARDED] && place[FORWARDED] == DELAYED && taken[FORWARDED] == NOBODY ->
          if
          :: d_step { taken[FORWARDED] == NOBODY && place[FORWARDED] == DELAYED -> taken[FORWARDED] = MINE(w) }   /* receive_due_messages */
             if
             :: d_step { FAULT } goto killed
             :: d_step { destination_exists -> arrive(w, FORWARDED, DESTINATION); roll_back(w) }
             :: d_step { !destination_exists && !refused -> roll_back(w); refused = true }
             :: d_step { !destination_exists && refused -> arrive(w, FORWARDED, ERROR_QUEUE); roll_back(w) }
             fi
          :: taken[FORWARDED] != NOBODY || place[FORWARDED] != DELAYED
          fi
       :: else
       fi
    od;
    goto stop;
killed:   /* the server notices later */
    atomic {
#ifdef ELECTED_BY_ROW
        kept = elected; roll_back(w); elected = kept; kept = NOBODY;
#else
        roll_back(w);
#endif
        refused = false
    }
    goto next;
stop:
    skip
}

proctype clock() {
    if
    :: destination_exists = true
    :: skip
    fi;
    due[0] = true;
    due[1] = true;
    due[FORWARDED] = true
}

AT_REST

init {
    atomic { RUN_AT_REST run mover(0); run mover(1); run clock() }
}

CLAIM(every_due_message_is_moved, <> GOAL)
