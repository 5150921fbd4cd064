/*
Start, change and completion of a saga instance: sagas/invocation.py. Three messages for one correlation value, each handled by
a worker of its own: two that start the instance or change it, and one that completes it. A message that fails is retried.

PESSIMISTIC locks the instance when it is loaded; otherwise the column Concurrency is compared. Broken variants:
BLIND_UPDATE, UPDATE_BY_CORRELATION_VALUE, NO_UNIQUE_INDEX, COMMIT_STATE_FIRST.
*/
#include "common.pml"

#define MESSAGES 3
#define CLOSE 2          /* the message that completes the instance; 0 and 1 start it */
#define NOBODY 0
#define MINE(w) ((w) + 1)

/* the committed row of the instance */
byte rows;               /* how many there are with this correlation value */
byte id;                 /* of the last instance */
byte version;            /* Concurrency */
byte data;               /* the state: one bit for each message that changed it */
byte locked;             /* whose open transaction has locked, changed or deleted the row */
byte inserting;          /* whose open transaction has inserted a row: other inserts wait for it */
byte changes;            /* what happened: one bit for each message whose change was committed since the start */
bool handled[MESSAGES];  /* the message is removed */
bool applied[MESSAGES];  /* what happened: the message has changed or completed an instance */
byte sent[MESSAGES];     /* what its method sent */

#if defined BLIND_UPDATE
#define UNCHANGED (rows == 1 && id == seen_id)
#elif defined UPDATE_BY_CORRELATION_VALUE
#define UNCHANGED (rows == 1 && version == seen)
#else
#define UNCHANGED (rows == 1 && id == seen_id && version == seen)
#endif
#define FREE_ROW (locked == NOBODY || locked == MINE(w))

inline undo(w) {
    if
    :: locked == MINE(w) -> locked = NOBODY
    :: else
    fi;
    if
    :: inserting == MINE(w) -> inserting = NOBODY
    :: else
    fi;
    stores = 0; found = false; seen_id = 0; seen = 0; was = 0
}

/* the state, the removal of the message and what was sent are one transaction */
inline commit_state(w) {
    if
    :: stores == 1 -> rows++; id++; version = 1; data = was | (1 << w); changes = data
    :: stores == 2 -> version = seen + 1; data = was | (1 << w); changes = changes | (1 << w)
    :: stores == 3 -> rows--; changes = 0; data = 0; version = 0
    :: else
    fi;
    assert(stores == 0 || !applied[w]);
    applied[w] = applied[w] || stores != 0;
    assert(rows <= 1);
    assert(data == changes)   /* no change is lost */
}

inline commit_message(w) {
    handled[w] = true; sent[w]++; assert(sent[w] == 1);
    undo(w)
}

proctype worker(byte w) {
    bool found;
    byte seen_id, seen, was;
    byte stores;   /* 1 insert_saga, 2 update_saga, 3 complete_saga */
    /* receive and load_saga */
next:
    if
#ifdef PESSIMISTIC
    :: d_step { rows == 1 && FREE_ROW -> locked = MINE(w); found = true; seen_id = id; seen = version; was = data }
#else
    :: d_step { rows == 1 -> found = true; seen_id = id; seen = version; was = data }
#endif
    :: d_step { rows == 0 -> found = false }
    :: d_step { FAULT } goto killed
    fi;
    if
    :: !found && w == CLOSE -> goto finish   /* not_found: the message is discarded */
    :: d_step { FAULT; undo(w) } goto next   /* the method fails */
#ifdef NO_UNIQUE_INDEX
    :: d_step { !found && w != CLOSE -> stores = 1 }
#else
    :: d_step { !found && w != CLOSE && inserting == NOBODY && rows == 0 -> inserting = MINE(w); stores = 1 }
    :: d_step { !found && w != CLOSE && inserting == NOBODY && rows == 1 && FREE_ROW -> undo(w) } goto next   /* SagaConflict */
#endif
    :: d_step {
           found && FREE_ROW && UNCHANGED ->
           locked = MINE(w); stores = (w == CLOSE -> 3 : 2)
       }
    :: d_step { found && FREE_ROW && !UNCHANGED -> undo(w) } goto next   /* SagaConflict */
    :: d_step { FAULT } goto killed
    fi;
finish:
#ifdef COMMIT_STATE_FIRST
    STEP(commit_state(w); locked = (locked == MINE(w) -> NOBODY : locked); inserting = (inserting == MINE(w) -> NOBODY : inserting))
    STEP(commit_message(w))
#else
    STEP(commit_state(w); commit_message(w))
#endif
    goto stop;
killed:
    atomic { undo(w) }
    goto next;
stop:
    skip
}

#define GOAL (handled[0] && handled[1] && handled[2])
AT_REST

init {
    if   /* whether the instance exists already */
    :: skip
    :: d_step { rows = 1; id = 1; version = 1 }
    fi;
    atomic { RUN_AT_REST run worker(0); run worker(1); run worker(CLOSE) }
}

CLAIM(every_message_is_handled, <> GOAL)
