/*
 * How two ranks, 0 and 1, agree that a rail is down, and that it is up again: RAILDOWN and
 * RAILDOWNACK, which go by any rail that is up, and PROBE and PROBEACK, which go by the rail
 * itself. They are not numbered and may be lost with the rail that bears them.
 *
 * A rail's two halves fail each for itself, and an end that has nothing under way does not
 * notice that the other one is gone. Both start up, in epoch 1.
 */

#ifndef RAILS
#define RAILS 2
#endif
/* What fails, by default rail 0 once. */
#if defined(TWICE)		/* rail 0, and then its next incarnation, or the other half, for good */
#define FAULTS 2
#define FAULTY 0
#define MAY_STAY (faults == 1)
#define MAY_GO (faults == 0)
#elif defined(LAST)		/* rail 0 for good, and then rail 1, which comes back */
#define FAULTS 2
#define FAULTY (2 - faults)
#define MAY_STAY (faults == 0)
#define MAY_GO (faults == 1)
#else
#define FAULTS 1
#define FAULTY 0
#define MAY_STAY true
#define MAY_GO true
#endif

#ifndef FIRST
#define FIRST 0			/* the rank whose half fails first, of two faults */
#endif
#ifndef MOST
#define MOST (1 + FAULTS)	/* incarnations */
#endif
#define OPS 2			/* operations that one half takes at a time */

/* A half as the BTL has it. */
#define UP 0
#define FAILED 1
#define DRAINED 2
byte half[2*RAILS];		/* of rail r at rank x: [2*r+x] */
byte epoch[2*RAILS];		/* of its newest incarnation */
byte newest[RAILS];		/* of the two ends' */
bit spent[RAILS];		/* an end of the newest incarnation has failed */
bit gone[RAILS];		/* cannot be connected any more */

/* A rail as the PML has it. */
#define RAIL_UP 0
#define FAILING 1
#define DOWN 2
#define PROBING 3
byte state[2*RAILS];
byte tell[2*RAILS];		/* the epoch of which RAILDOWN is to be sent; 0: none */
byte owed[2*RAILS];		/* the epoch of a RAILDOWN that is to be answered; 0: none */
byte fenced[2*RAILS];		/* newest epoch of which the peer's half is known to be Drained */
bit pieced[RAILS];		/* rank 0 has sent its one piece, in epoch 1 */
byte faults = FAULTS;

#if defined(LAST) || defined(TWICE) && !defined(PIECES)
#define PIECED false		/* that nothing passes the fence is shown by the others */
#else
#define PIECED (!pieced[r] && epoch[0] == 1)
#endif

#define PROBE 1
#define PROBEACK 2
#define RAILDOWN 3
#define RAILDOWNACK 4
#define PIECE 5			/* whatever would do harm after the fence */

#define OUT 0			/* on its way, or the peer's BTL has it */
#define HANDED 1		/* handed up */

#define PENDING 0		/* not called back */
#define NIL 1
#define ERR 2

typedef Op {
	unsigned kind : 3;
	unsigned about : 2;	/* which rail */
	unsigned inc : 4;	/* and which epoch of it */
	unsigned by : 4;	/* the epoch of the rail that bears it */
	unsigned stage : 1;
	unsigned cb : 2
}
Op op[2*RAILS*OPS];

byte i;				/* scratch, always zero between steps */

#define HAS_ROOM(e) (op[(e)*OPS].kind == 0 || op[(e)*OPS+OPS-1].kind == 0)

inline post(rr, xx, kk, bb, ee) {
	i = (2*(rr)+(xx))*OPS;
	do
	:: op[i].kind == 0 -> break
	:: else -> i++
	od;
	assert(i < (2*(rr)+(xx)+1)*OPS);
	op[i].kind = kk;
	op[i].about = bb;
	op[i].inc = ee;
	op[i].by = epoch[2*(rr)+(xx)];
	printf("%d: posts %d (PROBE 1 PROBEACK 2 RAILDOWN 3 RAILDOWNACK 4 PIECE 5) of rail %d epoch %d, by rail %d epoch %d\n", xx, kk, bb, ee, rr, op[i].by);
	i = 0
}

inline clear(qq) {
	op[qq].kind = 0;
	op[qq].about = 0;
	op[qq].inc = 0;
	op[qq].by = 0;
	op[qq].stage = 0;
	op[qq].cb = 0
}

/* The endpoint of rail r at rank x fails; E is its place in the tables. */
inline fail(rr, xx) {
	printf("%d: rail %d epoch %d failed\n", xx, rr, epoch[2*(rr)+(xx)]);
	half[2*(rr)+(xx)] = FAILED;
	state[2*(rr)+(xx)] = FAILING;
	tell[2*(rr)+(xx)] = epoch[2*(rr)+(xx)];
	if
	:: epoch[2*(rr)+(xx)] == newest[rr] -> spent[rr] = true
	:: else
	fi
}

/* The BTL's Connect: joins the newest incarnation if no end of that has failed, else begins the next. */
inline connect(rr, xx) {
	if
	:: spent[rr] ->
		newest[rr]++;
		assert(newest[rr] <= MOST);	/* no incarnation without a cause */
		spent[rr] = false
	:: else
	fi;
	epoch[2*(rr)+(xx)] = newest[rr];
	half[2*(rr)+(xx)] = UP;
	state[2*(rr)+(xx)] = PROBING;
	printf("%d: rail %d connected, epoch %d\n", xx, rr, epoch[2*(rr)+(xx)])
}

inline peer_was_drained(rr, xx, ee) {
	if
	:: fenced[2*(rr)+(xx)] < ee ->
		fenced[2*(rr)+(xx)] = ee;
		if
		:: tell[2*(rr)+(xx)] <= ee -> tell[2*(rr)+(xx)] = 0
		:: else
		fi
	:: else
	fi
}

/* yy: who got it. */
inline on_probe(rr, yy, ee) {
	peer_was_drained(rr, yy, ee - 1);
	if
	:: half[2*(rr)+(yy)] == DRAINED && epoch[2*(rr)+(yy)] < ee && !gone[rr] ->
		connect(rr, yy);
		if
		:: epoch[2*(rr)+(yy)] == ee -> post(rr, yy, PROBEACK, rr, ee)
		:: else -> post(rr, yy, PROBE, rr, epoch[2*(rr)+(yy)])	/* that one has ended meanwhile */
		fi
	:: half[2*(rr)+(yy)] == UP && epoch[2*(rr)+(yy)] == ee -> post(rr, yy, PROBEACK, rr, ee)
	:: else
	fi
}

inline on_probeack(rr, yy, ee) {
	peer_was_drained(rr, yy, ee - 1);
	if
	:: state[2*(rr)+(yy)] == PROBING && epoch[2*(rr)+(yy)] == ee -> state[2*(rr)+(yy)] = RAIL_UP
	:: else
	fi
}

/* A half that this RAILDOWN is about and that is not failing yet. */
#ifdef SPARE_PROBING
#define CONCERNED(e, ee) (half[e] == UP && state[e] == RAIL_UP && epoch[e] <= (ee))
#elif defined(SPARE_OLDER)
#define CONCERNED(e, ee) (half[e] == UP && epoch[e] == (ee))
#else
#define CONCERNED(e, ee) (half[e] == UP && epoch[e] <= (ee))
#endif

inline on_raildown(rr, yy, ee) {
	if
	:: CONCERNED(2*(rr)+(yy), ee) -> fail(rr, yy)
	:: else
	fi;
	if
	:: owed[2*(rr)+(yy)] < ee -> owed[2*(rr)+(yy)] = ee
	:: else
	fi
}

/* When it may be answered. */
#ifdef NO_DRAIN
#define ANSWERABLE(e) true
#elif defined(SPARE_OLDER)
#define ANSWERABLE(e) (epoch[e] != owed[e] || half[e] == DRAINED)
#else
#define ANSWERABLE(e) (epoch[e] > owed[e] || half[e] == DRAINED)
#endif

#ifdef TWICE
#define SAFE (r == 1)
#else
#define SAFE false
#endif

#define O op[s]
#define ME (2*r+x)
#define IT (2*r+1-x)
/* The peer's end of the incarnation that bore it is no more, or takes no more. */
#define LOST (epoch[IT] > O.by || epoch[IT] == O.by && half[IT] == DRAINED)
/* It can still be handed up: the half is there, or will be made of a newer incarnation. */
#define TAKEN (epoch[IT] == O.by && half[IT] != DRAINED || epoch[IT] < O.by && half[IT] == DRAINED)

proctype place(byte r; byte x; byte k) {
	byte s = (2*r+x)*OPS + k;
end:	do
	:: d_step { O.kind != 0 && O.stage == OUT && TAKEN &&
	     (O.kind != PROBE || HAS_ROOM(IT)) ->
		O.stage = HANDED;
		printf("%d: gets %d of rail %d epoch %d, by rail %d\n", 1-x, O.kind, O.about, O.inc, r);
		if
		:: O.kind == PROBE -> on_probe(r, 1-x, O.inc)
		:: O.kind == PROBEACK -> on_probeack(r, 1-x, O.inc)
		:: O.kind == RAILDOWN -> on_raildown(O.about, 1-x, O.inc)
		:: O.kind == RAILDOWNACK -> peer_was_drained(O.about, 1-x, O.inc)
		:: O.kind == PIECE -> assert(fenced[ME] < O.by)	/* nothing passes the fence */
		fi;
		if
		:: O.cb != PENDING || SAFE -> clear(s)	/* on a rail that cannot fail, when it is called back is all one */
		:: else
		fi
	   }
	:: d_step { !SAFE && O.kind != 0 && O.cb == PENDING && half[ME] != DRAINED && (O.stage == HANDED || TAKEN) ->
		O.cb = NIL;
		printf("%d: %d of rail %d epoch %d, by rail %d, called back: nil\n", x, O.kind, O.about, O.inc, r);
		if
		:: O.kind == PROBEACK && state[ME] == PROBING -> state[ME] = RAIL_UP
		:: else
		fi;
		if
		:: O.stage == HANDED -> clear(s)
		:: else
		fi
	   }
	:: d_step { O.kind != 0 && O.cb == PENDING && half[ME] == FAILED ->
		O.cb = ERR;
		printf("%d: %d of rail %d epoch %d, by rail %d, called back: error\n", x, O.kind, O.about, O.inc, r);
		if
		:: O.kind == RAILDOWN && O.inc > tell[2*O.about+x] && O.inc > fenced[2*O.about+x] -> tell[2*O.about+x] = O.inc
#ifndef NO_ACKRESEND
		:: O.kind == RAILDOWNACK && owed[2*O.about+x] < O.inc -> owed[2*O.about+x] = O.inc
#endif
		:: else
		fi;
		if
		:: O.stage == HANDED || LOST -> clear(s)
		:: else
		fi
	   }
	:: d_step { O.kind != 0 && O.stage == OUT && O.cb == ERR && LOST -> clear(s) }
	od
}

#define MY(k) (ME*OPS+(k))
#define ITS(k) (IT*OPS+(k))
#define BUSY(q) (op[q].kind != 0)
#define WAITS(q) (op[q].kind != 0 && op[q].cb == PENDING)
/* Nobody will answer for it. */
#define VAIN(q) (WAITS(q) && op[q].stage == OUT && (epoch[IT] > op[q].by || epoch[IT] == op[q].by && half[IT] != UP))
#define OWES(q) (op[q].kind != 0 && op[q].stage == OUT && op[q].cb == NIL && op[q].by >= epoch[ME])

proctype rail(byte r; byte x) {
end:	do
	/* The rails are alike: that the first fault is on rail 0 leaves nothing out. */
	:: atomic { half[ME] == UP && faults > 0 && r == FAULTY && (FAULTS == 1 || faults == 1 || x == FIRST) ->
		faults--;
		fail(r, x);
		if
		:: MAY_STAY
		:: MAY_GO -> gone[r] = true; printf("rail %d will not come back\n", r)
		fi
	   }
	/* An operation comes to nothing, or the other end has begun a new incarnation. */
	:: d_step { half[ME] == UP && (VAIN(MY(0)) || VAIN(MY(OPS-1)) || epoch[ME] < newest[r]) -> fail(r, x) }
#ifndef NO_DEADLINE
	/* No answer to a PROBE that the peer has taken comes any more: as it could not connect, say. */
	:: d_step { state[ME] == PROBING && half[ME] == UP && epoch[IT] != epoch[ME] &&
	     !BUSY(MY(0)) && !BUSY(MY(OPS-1)) && !BUSY(ITS(0)) && !BUSY(ITS(OPS-1)) -> fail(r, x) }
#endif
	:: d_step { half[ME] == FAILED && !WAITS(MY(0)) && !WAITS(MY(OPS-1)) && !OWES(ITS(0)) && !OWES(ITS(OPS-1)) ->
		half[ME] = DRAINED;
		printf("%d: rail %d epoch %d drained\n", x, r, epoch[ME]);
		state[ME] = DOWN
	   }
	:: d_step { state[ME] == DOWN && !gone[r] && HAS_ROOM(ME) && !OWES(ITS(0)) && !OWES(ITS(OPS-1)) ->
		connect(r, x);
		post(r, x, PROBE, r, epoch[ME])
	   }
	:: d_step { state[ME] == RAIL_UP && half[ME] == UP && x == 0 && r == 0 && PIECED && HAS_ROOM(ME) ->
		pieced[r] = true;
		post(r, x, PIECE, r, epoch[ME])
	   }
	od
}

/* Rank x says by rail b what is to be said of rail r. */
proctype herald(byte r; byte x; byte b) {
end:	do
	:: d_step { tell[ME] != 0 && state[2*b+x] == RAIL_UP && HAS_ROOM(2*b+x) ->
		post(b, x, RAILDOWN, r, tell[ME]);
		tell[ME] = 0
	   }
	:: d_step { owed[ME] != 0 && ANSWERABLE(ME) && state[2*b+x] == RAIL_UP && HAS_ROOM(2*b+x) ->
		post(b, x, RAILDOWNACK, r, owed[ME]);
		owed[ME] = 0
	   }
	od
}

#define ALIVE(r) (state[2*(r)] == RAIL_UP && state[2*(r)+1] == RAIL_UP && epoch[2*(r)] == epoch[2*(r)+1])
#if RAILS == 2
#define SOME_ALIVE (ALIVE(0) || ALIVE(1))
#else
#define SOME_ALIVE (ALIVE(0) || ALIVE(1) || ALIVE(2))
#endif
/* What is known in the end of rail r at rank x. */
#define SETTLED(e, r) (gone[r] -> (state[e] == DOWN && fenced[e] >= epoch[e] && half[e] == DRAINED || ALIVE(r)) : ALIVE(r))

init {
	atomic {
		for (i : 0 .. RAILS-1) {
			newest[i] = 1;
			epoch[2*i] = 1;
			epoch[2*i+1] = 1;
			run rail(i, 0);
			run rail(i, 1);
			run place(i, 0, 0); run place(i, 0, 1);
			run place(i, 1, 0); run place(i, 1, 1)
		}
		run herald(0, 0, 1); run herald(0, 1, 1);
		run herald(1, 0, 0); run herald(1, 1, 0);
#if RAILS > 2
		run herald(0, 0, 2); run herald(0, 1, 2);
		run herald(1, 0, 2); run herald(1, 1, 2);
		run herald(2, 0, 0); run herald(2, 1, 0);
		run herald(2, 0, 1); run herald(2, 1, 1);
#endif
		i = 0
	}
	/* While a rail lives, every other is fenced at both ends, or up again. */
	timeout -> d_step {
		for (i : 0 .. RAILS-1) {
			assert(!SOME_ALIVE || SETTLED(2*i, i) && SETTLED(2*i+1, i));
			assert(gone[i] || ALIVE(i))	/* what can come back does */
		}
	}
}
