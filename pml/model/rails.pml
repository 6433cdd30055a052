/*
 * How ranks 0 and 1 agree that a rail is down, and that it is up again: by RAILDOWN, which
 * goes by any rail that is up, and by PROBE and PROBEACK, which go by the rail that they are
 * about. They are not numbered, and may be lost with the rail that carries them. RAILDOWN
 * stands for FIN too, which names incarnations as it does: after both, the receiver waits at
 * the fence until its own half is drained.
 *
 * The two halves of a rail fail each for itself. A half with nothing under way does not
 * notice that the other one has failed. Both halves are up at first, in epoch 1.
 */

#ifndef RAILS
#define RAILS 2
#endif
/* Which rails fail; by default rail 0, once. */
#if defined(TWICE)		/* rail 0, then its next incarnation or its other half for good */
#define FAULTS 2
#define FAULTY 0
#define MAY_STAY (faults == 1)
#define MAY_GO (faults == 0)
#elif defined(LAST)		/* rail 0 for good, then rail 1, which comes back */
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
#define FIRST 0			/* the rank whose half has the first of two faults */
#endif
#ifndef MOST
#define MOST (1 + FAULTS)	/* number of incarnations */
#endif
#define OPS 2			/* operations under way on one half */

/* State of a half in the BTL. */
#define UP 0
#define FAILED 1
#define DRAINED 2
byte half[2*RAILS];		/* of rail r at rank x: index 2*r+x */
byte epoch[2*RAILS];		/* of the half's newest incarnation */
byte newest[RAILS];		/* the newest epoch of both halves */
bit spent[RAILS];		/* a half of the newest incarnation has failed */
bit gone[RAILS];		/* the rail will not come back */

/* State of a rail in the BML. */
#define RAIL_UP 0
#define FAILING 1
#define DOWN 2
#define PROBING 3
byte state[2*RAILS];
byte raildown_due[2*RAILS];		/* epoch for which RAILDOWN has to be sent; 0: none */
byte fence[2*RAILS];		/* epoch that RAILDOWN has named, until the fence is passed; 0: none */
byte passed[2*RAILS];		/* newest epoch whose fence was passed */
bit pieced[RAILS];		/* rank 0 has sent its one piece, in epoch 1 */
byte faults = FAULTS;

#if defined(LAST) || defined(TWICE) && !defined(PIECES)
#define PIECED false		/* the other runs show that nothing passes the fence */
#else
#define PIECED (!pieced[r] && epoch[0] == 1)
#endif

#define PROBE 1
#define PROBEACK 2
#define RAILDOWN 3
#define PIECE 4			/* any fragment that would do harm after the fence */

#define OUT 0			/* on its way, or in the peer's BTL */
#define HANDED 1		/* handed up */

#define PENDING 0		/* not called back */
#define NIL 1
#define ERR 2

typedef Op {
	unsigned kind : 3;
	unsigned about : 2;	/* rail that the message is about */
	unsigned inc : 4;	/* and the epoch of that rail */
	unsigned by : 4;	/* epoch of the rail that carries it */
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
	printf("%d: posts %d (PROBE 1 PROBEACK 2 RAILDOWN 3 PIECE 4) of rail %d epoch %d, by rail %d epoch %d\n", xx, kk, bb, ee, rr, op[i].by);
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

/* The endpoint of rail rr at rank xx fails. */
inline fail(rr, xx) {
	printf("%d: rail %d epoch %d failed\n", xx, rr, epoch[2*(rr)+(xx)]);
	half[2*(rr)+(xx)] = FAILED;
	state[2*(rr)+(xx)] = FAILING;
	raildown_due[2*(rr)+(xx)] = epoch[2*(rr)+(xx)];
	if
	:: epoch[2*(rr)+(xx)] == newest[rr] -> spent[rr] = true
	:: else
	fi
}

/* Connect of the BTL joins the newest incarnation, or makes the next one if a half of that has
   failed. */
inline connect(rr, xx) {
	if
	:: spent[rr] ->
		newest[rr]++;
		assert(newest[rr] <= MOST);	/* each incarnation has a fault for a cause */
		spent[rr] = false
	:: else
	fi;
	epoch[2*(rr)+(xx)] = newest[rr];
	half[2*(rr)+(xx)] = UP;
	state[2*(rr)+(xx)] = PROBING;
	printf("%d: rail %d connected, epoch %d\n", xx, rr, epoch[2*(rr)+(xx)])
}

/* Rank xx begins to use an incarnation, which the peer has made or joined. */
inline use(rr, xx) {
	assert(epoch[2*(rr)+1-(xx)] >= epoch[2*(rr)+(xx)]);
	state[2*(rr)+(xx)] = RAIL_UP
}

/* Rank yy receives a PROBE. */
inline on_probe(rr, yy, ee) {
	if
	:: half[2*(rr)+(yy)] == DRAINED && epoch[2*(rr)+(yy)] < ee && !gone[rr] ->
		connect(rr, yy);
		if
		:: epoch[2*(rr)+(yy)] == ee -> post(rr, yy, PROBEACK, rr, ee)
		:: else -> post(rr, yy, PROBE, rr, epoch[2*(rr)+(yy)])	/* the peer's incarnation has failed meanwhile */
		fi
	:: half[2*(rr)+(yy)] == UP && epoch[2*(rr)+(yy)] == ee -> post(rr, yy, PROBEACK, rr, ee)
	:: else
	fi
}

inline on_probeack(rr, yy, ee) {
	if
	:: state[2*(rr)+(yy)] == PROBING && epoch[2*(rr)+(yy)] == ee -> use(rr, yy)
	:: else
	fi
}

/* A half that RAILDOWN makes fail: it is up, and not newer than the epoch. */
#ifdef SPARE_PROBING
#define MUST_FAIL(e, ee) (half[e] == UP && state[e] == RAIL_UP && epoch[e] <= (ee))
#elif defined(SPARE_OLDER)
#define MUST_FAIL(e, ee) (half[e] == UP && epoch[e] == (ee))
#else
#define MUST_FAIL(e, ee) (half[e] == UP && epoch[e] <= (ee))
#endif

inline on_raildown(rr, yy, ee) {
	if
	:: MUST_FAIL(2*(rr)+(yy), ee) -> fail(rr, yy)
	:: else
	fi;
	if
	:: fence[2*(rr)+(yy)] < ee -> fence[2*(rr)+(yy)] = ee
	:: else
	fi
}

/* Nothing of the incarnation that RAILDOWN has named reaches this rank any more. */
#ifdef NO_DRAIN
#define MAY_PASS(e) true
#elif defined(SPARE_OLDER)
#define MAY_PASS(e) (epoch[e] != fence[e] || half[e] == DRAINED)
#else
#define MAY_PASS(e) (epoch[e] > fence[e] || half[e] == DRAINED)
#endif

#ifdef TWICE
#define SAFE (r == 1)
#else
#define SAFE false
#endif

#define O op[s]
#define ME (2*r+x)
#define IT (2*r+1-x)
/* The peer's half of the incarnation that carries the message takes nothing any more. */
#define LOST (epoch[IT] > O.by || epoch[IT] == O.by && half[IT] == DRAINED)
/* The message can still be handed up: the peer's half exists, or will be made. */
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
		:: O.kind == PIECE -> assert(passed[IT] < O.by)	/* nothing passes the fence */
		fi;
		if
		:: O.cb != PENDING || SAFE -> clear(s)	/* on a rail that cannot fail, the time of the callback does not matter */
		:: else
		fi
	   }
	:: d_step { !SAFE && O.kind != 0 && O.cb == PENDING && half[ME] != DRAINED && (O.stage == HANDED || TAKEN) ->
		O.cb = NIL;
		printf("%d: %d of rail %d epoch %d, by rail %d, called back: nil\n", x, O.kind, O.about, O.inc, r);
		if
		:: O.kind == PROBEACK && state[ME] == PROBING -> use(r, x)
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
#ifndef NO_RESEND
		:: O.kind == RAILDOWN && O.inc > raildown_due[2*O.about+x] -> raildown_due[2*O.about+x] = O.inc
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
#define UNDER_WAY(q) (op[q].kind != 0 && op[q].cb == PENDING)
/* The operation can never be called back with nil. */
#define UNANSWERABLE(q) (UNDER_WAY(q) && op[q].stage == OUT && (epoch[IT] > op[q].by || epoch[IT] == op[q].by && half[IT] != UP))
#define DELIVERABLE(q) (op[q].kind != 0 && op[q].stage == OUT && op[q].cb == NIL && op[q].by >= epoch[ME])

proctype rail(byte r; byte x) {
end:	do
	/* By symmetry it is enough that the first fault is on rail 0. */
	:: atomic { half[ME] == UP && faults > 0 && r == FAULTY && (FAULTS == 1 || faults == 1 || x == FIRST) ->
		faults--;
		fail(r, x);
		if
		:: MAY_STAY
		:: MAY_GO -> gone[r] = true; printf("rail %d will not come back\n", r)
		fi
	   }
	/* An operation fails, or the other half has begun a new incarnation. */
	:: d_step { half[ME] == UP && (UNANSWERABLE(MY(0)) || UNANSWERABLE(MY(OPS-1)) || epoch[ME] < newest[r]) -> fail(r, x) }
#ifndef NO_DEADLINE
	/* The peer took a PROBE and will not answer, because it could not connect, for example. */
	:: d_step { state[ME] == PROBING && half[ME] == UP && epoch[IT] != epoch[ME] &&
	     !BUSY(MY(0)) && !BUSY(MY(OPS-1)) && !BUSY(ITS(0)) && !BUSY(ITS(OPS-1)) -> fail(r, x) }
#endif
	:: d_step { half[ME] == FAILED && !UNDER_WAY(MY(0)) && !UNDER_WAY(MY(OPS-1)) && !DELIVERABLE(ITS(0)) && !DELIVERABLE(ITS(OPS-1)) ->
		half[ME] = DRAINED;
		printf("%d: rail %d epoch %d drained\n", x, r, epoch[ME]);
		state[ME] = DOWN
	   }
	:: d_step { state[ME] == DOWN && !gone[r] && HAS_ROOM(ME) && !DELIVERABLE(ITS(0)) && !DELIVERABLE(ITS(OPS-1)) ->
		connect(r, x);
		post(r, x, PROBE, r, epoch[ME])
	   }
	:: d_step { fence[ME] != 0 && MAY_PASS(ME) ->
		passed[ME] = fence[ME];
		fence[ME] = 0
	   }
	:: d_step { state[ME] == RAIL_UP && half[ME] == UP && x == 0 && r == 0 && PIECED && HAS_ROOM(ME) ->
		pieced[r] = true;
		post(r, x, PIECE, r, epoch[ME])
	   }
	od
}

/* Rank x sends RAILDOWN about rail r by rail b. */
proctype announcer(byte r; byte x; byte b) {
end:	do
	:: d_step { raildown_due[ME] != 0 && state[2*b+x] == RAIL_UP && HAS_ROOM(2*b+x) ->
		post(b, x, RAILDOWN, r, raildown_due[ME]);
		raildown_due[ME] = 0
	   }
	od
}

#define ALIVE(r) (state[2*(r)] == RAIL_UP && state[2*(r)+1] == RAIL_UP && epoch[2*(r)] == epoch[2*(r)+1])
#if RAILS == 2
#define SOME_ALIVE (ALIVE(0) || ALIVE(1))
#else
#define SOME_ALIVE (ALIVE(0) || ALIVE(1) || ALIVE(2))
#endif
/* The final state of rail r at a rank, e = 2*r+x: up, or down for good. Nobody waits at a fence. */
#define SETTLED(e, r) (fence[e] == 0 && (ALIVE(r) || gone[r] && state[e] == DOWN))

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
		run announcer(0, 0, 1); run announcer(0, 1, 1);
		run announcer(1, 0, 0); run announcer(1, 1, 0);
#if RAILS > 2
		run announcer(0, 0, 2); run announcer(0, 1, 2);
		run announcer(1, 0, 2); run announcer(1, 1, 2);
		run announcer(2, 0, 0); run announcer(2, 1, 0);
		run announcer(2, 0, 1); run announcer(2, 1, 1);
#endif
		i = 0
	}
	/* At the end, if a rail is up, every other one is up again or down at both ranks. */
	timeout -> d_step {
		for (i : 0 .. RAILS-1) {
			assert(!SOME_ALIVE || SETTLED(2*i, i) && SETTLED(2*i+1, i));
			assert(gone[i] || ALIVE(i))	/* each rail that can come back is up */
		}
	}
}
