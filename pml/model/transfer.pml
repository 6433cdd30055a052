/*
 * Long messages from rank A (0) to rank B (1), in pieces over two rails that fail and come back. A
 * piece that a rail ended unknown goes by another rail at once; the fence stands before a buffer is
 * given back. The two halves of a rail fail and drain each for itself, and come back together
 * (rails.pml). Numbered fragments arrive once and in order (numbered.pml), at any time; at any time
 * their sender learns that they were delivered.
 *
 * A step of a rank (a callback, an arrival, a decision) is one atomic block, because the
 * real code runs under the lock of the rank's progress engine. A BTL may take each of its
 * steps at any moment: a rail keeps no order.
 */

/* How messages move: one of COPY (FRAG), PUT, GET. With MIXED only rail 0 has remote access. */
#if !defined(COPY) && !defined(PUT) && !defined(GET)
#define COPY
#endif
#ifdef MIXED
#define REMOTES 1		/* rails with remote access */
#else
#define REMOTES 2
#endif

#ifndef MSGS
#define MSGS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef NO_WAIT
#define NO_WAIT 2		/* this rank does not wait for its own half: none */
#endif
#define OPS 2			/* operations under way on one half of a rail */
#define PIECES 2

#define A 0
#define B 1

/* A half of a rail: one rank's endpoint. */
#define UP 0
#define FAILED 1
#define DRAINED 2
byte half[4];			/* of rail r at rank x: half[2*r+x] */
byte epoch[2] = 1;		/* of the rail's newest incarnation */
bit gone[2];			/* the rail will not come back */
bit stale[2];			/* the device was made anew: it refuses the keys of the present message */
byte faults = FAULTS;

/* Operations that a BTL has accepted and that may still have an effect. */
#define PIECE 1			/* a FRAG */
#define WRITE 2
#define READ 3

#define POSTED 0		/* the bytes are still in the user's buffer */
#define OUT 1			/* the bytes were read; they are on their way, or the peer's BTL has them */
#define HANDED 2		/* handed up to the BML, or in memory */

#define PENDING 0		/* not called back */
#define NIL 1
#define ERR 2

typedef Op {
	unsigned kind : 2;
	unsigned n : 1;		/* index of the piece */
	unsigned h : 2;		/* handle of the receive */
	unsigned ver : 2;	/* content: number of the message, or 0 if the user has overwritten it */
	unsigned stage : 2;
	unsigned cb : 2
}
Op op[4 * OPS];			/* half e has op[e*OPS] to op[e*OPS+OPS-1] */

/* The ledger: where a piece is. */
#define TODO 0
#define AGAIN 1			/* to be moved, as a fragment again */
#define MOVING 2
#define THERE 3			/* by remote access */
#define FRAGGED 4		/* by a fragment */

/* Numbered fragments under way, and what a FIN or ACK says. */
mtype = { RNDV, ACK, PUT_MSG, FIN, RNDVRESTARTNOTIFY, RNDVRESTARTACK }
chan to_a = [2] of { mtype };
chan to_b = [2] of { mtype };
byte fin_fence[2];
byte fin_frags;
byte ack_from;			/* pieces that need not be sent */

/* The sender. */
#define S_IDLE 0
#define S_RTS 1
#define S_STREAMING 2
#define S_PUTTING 3
#define S_RESTARTING 4
#define S_FINISHING 5		/* nothing is left to post, but the buffer is still in use */
byte s_state, sent;
byte s_piece[PIECES];
byte s_fence[2];		/* incarnation of the rail that ended a piece unknown; 0: none */
bit s_wrong;			/* remote access was refused */
bit s_detached;			/* the send goes on from a copy */
byte sbuf;			/* content of the send buffer */

/* The receiver. */
#define R_IDLE 0		/* the user owns the buffer */
#define R_STREAMING 1		/* pieces may arrive in the buffer */
#define R_GETTING 2
byte r_state, r_count, received, announced;
byte r_piece[PIECES];		/* of a remote read */
byte r_fence[2];
bit r_wrong;
bit r_have[PIECES];		/* came in a fragment; r_count is how many */
bit r_fin;			/* FIN is here */
byte rbuf[PIECES];		/* content of the receive buffer */
#define HANDLE (received + 1)	/* of the receive under way: none is used twice */

bit fails_again;		/* two incarnations of a rail have failed with remote access */

byte i, j;			/* scratch, always zero between steps */

#define HAS_ROOM(e) (op[(e)*OPS].kind == 0 || op[(e)*OPS+OPS-1].kind == 0)
#define CAN_POST(r, x) (half[2*(r)+(x)] == UP && HAS_ROOM(2*(r)+(x)))

/* No incarnation of rank x's half that ended a piece unknown can touch the buffer any more. */
#define SETTLED1(r, x, f) (f[r] == 0 || epoch[r] > f[r] || half[2*(r)+(x)] == DRAINED)
#define SETTLED(x, f) (NO_WAIT == x || SETTLED1(0, x, f) && SETTLED1(1, x, f))

inline post(rr, xx, kk, nn) {
	i = (2*rr+xx)*OPS;
	do
	:: op[i].kind == 0 -> break
	:: else -> i++
	od;
	op[i].kind = kk;
	op[i].n = nn;
	op[i].h = (op[i].kind == PIECE -> sent + 1 : 0);	/* the ACK or PUT has told */
	i = 0
}

inline clear(qq) {
	op[qq].kind = 0;
	op[qq].n = 0;
	op[qq].h = 0;
	op[qq].ver = 0;
	op[qq].stage = 0;
	op[qq].cb = 0
}

/* A FRAG arrives. It is dropped unless its handle names the receive, and the piece is new. */
inline on_frag(pp, hh, vv) {
	if
	:: r_state == R_STREAMING && hh == HANDLE ->
		assert(vv == HANDLE);	/* the sender's user has not overwritten it */
		if
#ifndef NO_RANGES
		:: r_have[pp]
#endif
		:: else ->
			rbuf[pp] = vv;
			r_have[pp] = true;
			r_count++
		fi
	:: else
	fi
}

/* A NIC writes, or reads, without the receiver's software. */
inline land(pp, vv) {
	assert(r_state != R_IDLE);	/* no access to a buffer that the user owns */
	assert(vv == HANDLE);		/* the sender's user has not overwritten it */
	rbuf[pp] = vv
}

/* A piece is there, or it is unknown whether it is: then it goes again. If two incarnations of a
   rail fail with remote access, the rest goes by fragments. */
inline ended(piece, fenced, rr, ee, there, again) {
	if
	:: ee ->
		piece = again;
		if
		:: there == THERE && fenced != 0 && fenced < epoch[rr] -> fails_again = true
		:: else
		fi;
		fenced = epoch[rr]
	:: else -> piece = there
	fi
}

#ifdef NO_AGAIN
#define UNKNOWN TODO
#else
#define UNKNOWN AGAIN
#endif

/* An operation on rail rr is called back; ee: with an error. */
inline done(rr, kk, nn, ee) {
	if
	:: kk == READ -> ended(r_piece[nn], r_fence[rr], rr, ee, THERE, TODO); r_wrong = r_wrong || fails_again
	:: kk == WRITE -> ended(s_piece[nn], s_fence[rr], rr, ee, THERE, TODO); s_wrong = s_wrong || fails_again
	:: else -> ended(s_piece[nn], s_fence[rr], rr, ee, FRAGGED, UNKNOWN)
	fi
}

#define O op[s]
#define MINE half[2*r+x]
#define THEIRS half[2*r+1-x]

/* One place for an operation on half x of rail r. */
proctype place(byte r; byte x; byte k) {
	byte s = (2*r+x)*OPS + k;
end:	do
	/* The bytes are read: at any time until Drained, even after a callback with an error. */
	:: d_step { O.kind != 0 && O.stage == POSTED &&
	     (O.kind == READ -> THEIRS != DRAINED && !stale[r] : MINE != DRAINED && (O.kind == PIECE || !stale[r])) ->
		O.ver = sbuf;
		O.stage = OUT
	   }
	/* The peer's NIC refuses the access. */
	:: d_step { O.kind > PIECE && O.stage == POSTED && O.cb == PENDING && MINE == UP && stale[r] ->
		if
		:: O.kind == READ -> r_piece[O.n] = TODO; r_wrong = true
		:: else -> s_piece[O.n] = TODO; s_wrong = true
		fi;
		clear(s)
	   }
	/* The operation arrives. */
	:: d_step { O.kind != 0 && O.stage == OUT && (O.kind == READ -> MINE : THEIRS) != DRAINED ->
		O.stage = HANDED;
		if
		:: O.kind == PIECE -> on_frag(O.n, O.h, O.ver)
		:: else -> land(O.n, O.ver)
		fi;
		if
		:: O.cb != PENDING -> clear(s)
		:: else
		fi
	   }
	/* Callback with nil: the peer's BTL has the fragment, or the bytes are in memory. */
	:: d_step { O.kind != 0 && O.cb == PENDING && MINE != DRAINED &&
	     (O.stage == HANDED || O.stage == OUT && O.kind == PIECE && THEIRS != DRAINED) ->
		O.cb = NIL;
		done(r, O.kind, O.n, 0);
		if
		:: O.stage == HANDED -> clear(s)
		:: else
		fi
	   }
	/* Callback with an error: the operation may have been delivered or not. */
	:: d_step { O.kind != 0 && O.cb == PENDING && MINE == FAILED ->
		O.cb = ERR;
		done(r, O.kind, O.n, 1);
		if
		:: O.stage == HANDED || O.stage == OUT && THEIRS == DRAINED && O.kind != READ -> clear(s)
		:: else
		fi
	   }
	od
}

#define UNDER_WAY(s) (op[s].kind != 0 && op[s].cb == PENDING)
#define DELIVERABLE(s) (op[s].kind != 0 && op[s].stage == OUT && op[s].cb == NIL)
#define MY(k) ((2*r+x)*OPS+(k))
#define ITS(k) ((2*r+1-x)*OPS+(k))

/* Half x of rail r. */
proctype rail(byte r; byte x) {
end:	do
	:: atomic { MINE == UP && faults > 0 ->
		faults--;
		MINE = FAILED;
		if
		:: true
		:: gone[r] = true
		fi
	   }
	/* The other half is down. This half learns it from an operation that fails, from RAILDOWN, or
	   from the other half's next incarnation. */
	:: d_step { MINE == UP && THEIRS != UP -> MINE = FAILED }
	/* Every operation was called back, and what the peer thinks delivered was handed up. */
	:: d_step { MINE == FAILED && !UNDER_WAY(MY(0)) && !UNDER_WAY(MY(OPS-1)) &&
	     !DELIVERABLE(ITS(0)) && !DELIVERABLE(ITS(OPS-1)) ->
		MINE = DRAINED;
		i = 0;
		do
		:: i < OPS ->
			/* Nothing of this half is sent any more, and nothing reaches its memory. */
			if
			:: op[MY(i)].kind != 0 && (op[MY(i)].stage == POSTED || op[MY(i)].kind == READ || THEIRS == DRAINED) ->
				clear(MY(i))
			:: else
			fi;
			if
			:: op[ITS(i)].kind != 0 && op[ITS(i)].kind != READ && op[ITS(i)].stage == OUT && op[ITS(i)].cb == ERR ->
				clear(ITS(i))
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	   }
	/* The next incarnation. Its device may be another one, which knows no key of before. */
	:: atomic { x == A && half[2*r] == DRAINED && half[2*r+1] == DRAINED && !gone[r] ->
		epoch[r]++;
		half[2*r] = UP;
		half[2*r+1] = UP;
#ifndef COPY
		if
		:: true
		:: r < REMOTES -> stale[r] = true
		fi
#endif
	   }
	od
}

#define WANTS(p) (p[0] <= AGAIN || p[1] <= AGAIN)
#define MOVES(p) (p[0] == MOVING || p[1] == MOVING)
#define DONE(p) (p[0] >= THERE && p[1] >= THERE)
#define NEXT(p) (p[0] <= AGAIN -> 0 : 1)

/* Rank x has a rail with remote access, or any rail. */
#define ANY(x) (half[x] == UP || half[2+(x)] == UP)
#ifdef MIXED
#define REMOTE(x) (half[x] == UP)
#else
#define REMOTE(x) ANY(x)
#endif
#define CANNOT_MOVE(x, wrong) (wrong || ANY(x) && !REMOTE(x))

/* One dead rail of two is no reason to move the rest in another way. */
#define HAS_REASON(x) (fails_again || stale[0] || stale[1] || REMOTES == 1 && half[x] != UP)

#define SENDS (WANTS(s_piece) && (s_state == S_STREAMING || s_state == S_PUTTING && !s_wrong && REMOTE(A)))

inline post_piece(rr) {
	j = NEXT(s_piece);
	post(rr, A, (s_state == S_PUTTING && rr < REMOTES && s_piece[j] == TODO -> WRITE : PIECE), j);
	s_piece[j] = MOVING;
	j = 0
}

#ifdef DETACH_EARLY
#define MAY_DETACH true
#else
#define MAY_DETACH SETTLED(A, s_fence)
#endif

proctype sender() {
end:	do
	/* The user sends from the one buffer. */
	:: d_step { s_state == S_IDLE && sent < MSGS ->
		sbuf = sent + 1;
#ifdef GET
		stale[0] = false;	/* RGET has new keys */
		stale[1] = false;
#endif
		to_b!RNDV;
		s_state = S_RTS
	   }
	/* The receiver answers. */
	:: d_step { to_a?[ACK] ->
		to_a?ACK;
		if
		:: ack_from == 1 -> s_piece[0] = THERE
		:: else
		fi;
		ack_from = 0;
		s_state = S_STREAMING
	   }
	:: d_step { to_a?[PUT_MSG] -> to_a?PUT_MSG; s_state = S_PUTTING }
	:: d_step { to_a?[FIN] -> to_a?FIN; s_state = S_FINISHING }
	:: d_step { to_a?[RNDVRESTARTACK] -> to_a?RNDVRESTARTACK; s_state = S_STREAMING }
	/* A piece is posted on either rail. By symmetry it is enough that the first one goes by rail 0. */
	:: d_step { SENDS && CAN_POST(0, A) -> post_piece(0) }
	:: d_step { SENDS && CAN_POST(1, A) && (sent > 0 || faults < FAULTS || s_piece[0] != TODO || REMOTES == 1) -> post_piece(1) }
	/* All pieces are there. */
	:: d_step { (s_state == S_STREAMING || s_state == S_PUTTING) && DONE(s_piece) ->
		s_state = S_FINISHING;
#ifdef PUT
		fin_fence[0] = s_fence[0];
		fin_fence[1] = s_fence[1];
#ifndef NO_COUNT
		fin_frags = (s_piece[0] == FRAGGED) + (s_piece[1] == FRAGGED);
#endif
		to_b!FIN
#endif
	   }
	/* The rest cannot be written. */
	:: d_step { s_state == S_PUTTING && WANTS(s_piece) && !MOVES(s_piece) && CANNOT_MOVE(A, s_wrong) ->
		assert(HAS_REASON(A));
		s_state = S_RESTARTING;
		s_wrong = false;
		to_b!RNDVRESTARTNOTIFY
	   }
#ifdef DETACH
	/* The user takes the buffer back before, and overwrites it. The send goes on from a copy. What a
	   failed rail may still read is not in the copy. */
	:: d_step { (s_state == S_STREAMING || s_state == S_PUTTING) && !s_detached && !MOVES(s_piece) && MAY_DETACH ->
		s_detached = true;
		i = 0;
		do
		:: i < 4*OPS ->
			if
			:: op[i].kind != 0 && op[i].kind != READ && op[i].stage == POSTED -> op[i].stage = OUT
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	   }
#endif
	/* The send is complete, and the user overwrites the buffer. */
	:: d_step { s_state == S_FINISHING && SETTLED(A, s_fence) ->
		s_state = S_IDLE;
		s_wrong = false;
		s_detached = false;
		fails_again = false;
		s_piece[0] = TODO;
		s_piece[1] = TODO;
		s_fence[0] = 0;
		s_fence[1] = 0;
		sbuf = 0;
		sent++
	   }
	od
}

/* FIN names incarnations. The receiver brings its half of them down. */
inline fence(rr) {
#ifndef NO_FENCE
	r_fence[rr] = fin_fence[rr];
	if
	:: half[2*rr+B] == UP && epoch[rr] <= fin_fence[rr] -> half[2*rr+B] = FAILED
	:: else
	fi;
#endif
	fin_fence[rr] = 0
}

inline post_read(rr) {
	j = NEXT(r_piece);
	post(rr, B, READ, j);
	r_piece[j] = MOVING;
	j = 0
}

#define READS (r_state == R_GETTING && !r_wrong && WANTS(r_piece))
#ifdef ASK_EARLY
#define MAY_ASK true
#else
#define MAY_ASK SETTLED(B, r_fence)
#endif
#ifdef PUT
#define WHOLE (r_fin && r_count >= fin_frags)
#else
#define WHOLE (r_count == PIECES || r_state == R_GETTING && DONE(r_piece))
#endif

proctype receiver() {
end:	do
	:: d_step { to_b?[RNDV] -> to_b?RNDV; announced++ }
	/* The user receives into the one buffer, and a RNDV matches. */
	:: d_step { r_state == R_IDLE && announced > received ->
#ifdef GET
		r_state = R_GETTING
#else
		r_state = R_STREAMING;
#ifdef PUT
		stale[0] = false;	/* PUT has new keys */
		stale[1] = false;
		to_a!PUT_MSG
#else
		to_a!ACK
#endif
#endif
	   }
	:: d_step { READS && CAN_POST(0, B) -> post_read(0) }
	:: d_step { READS && CAN_POST(1, B) && REMOTES > 1 && (received > 0 || faults < FAULTS || r_piece[0] != TODO) -> post_read(1) }
	/* The rest cannot be read. What is missing, from the first piece on, comes in fragments. A late
	   read must not find what the sender's user has written since. */
	:: d_step { r_state == R_GETTING && WANTS(r_piece) && !MOVES(r_piece) && CANNOT_MOVE(B, r_wrong) && MAY_ASK ->
		assert(HAS_REASON(B));
		if
		:: r_piece[0] == THERE -> r_have[0] = true; r_count = 1; ack_from = 1
		:: else
		fi;
		r_piece[0] = TODO;
		r_piece[1] = TODO;
		r_wrong = false;
		r_state = R_STREAMING;
		to_a!ACK
	   }
	/* The keys are of no use any more. The rest comes in fragments, to the same handle. */
	:: d_step { to_b?[RNDVRESTARTNOTIFY] ->
		to_b?RNDVRESTARTNOTIFY;
		assert(r_state == R_STREAMING && !r_fin);
		to_a!RNDVRESTARTACK
	   }
	:: d_step { to_b?[FIN] ->
		to_b?FIN;
		assert(r_state == R_STREAMING && !r_fin);
		r_fin = true;
		fence(0);
		fence(1)
	   }
	/* The receive is complete. */
	:: d_step { r_state != R_IDLE && WHOLE && SETTLED(B, r_fence) ->
		assert(rbuf[0] == HANDLE && rbuf[1] == HANDLE);	/* the right bytes, and all of them */
		if
		:: r_state == R_GETTING -> to_a!FIN
		:: else
		fi;
		received++;
		r_state = R_IDLE;
		r_wrong = false;
		r_fin = false;
		fails_again = false;
		r_piece[0] = TODO;
		r_piece[1] = TODO;
		r_fence[0] = 0;
		r_fence[1] = 0;
		r_have[0] = false;
		r_have[1] = false;
		r_count = 0;
		fin_frags = 0;
		rbuf[0] = 0;
		rbuf[1] = 0
	   }
	od
}

#define ALIVE(r) (half[2*(r)] == UP && half[2*(r)+1] == UP)

init {
	atomic {
		run sender();
		run receiver();
		run rail(0, A); run rail(0, B); run rail(1, A); run rail(1, B);
		for (i : 0 .. OPS-1) {
			run place(0, A, i); run place(1, A, i);
#ifdef GET
			run place(0, B, i); run place(1, B, i)
#endif
		}
		i = 0
	}
	/* When nothing can happen any more, all messages are received, or no rail is up. */
	timeout -> assert(!ALIVE(0) && !ALIVE(1) || sent == MSGS && received == MSGS)
}
