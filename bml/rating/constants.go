package rating

// The ratios below are the time of messages divided by the time in a fluid model of the links,
// which always moves bytes at the sum of the rates. settings_test.go measures them.
const (
	// targetNanos is the time in which a rail delivers its room, without round trips. It covers a
	// peer that loses its processor for a time slice (away 5 of 25 ms: 1.02). With 10 ms, short
	// messages wait twice as long behind long ones, and a loss holds up more bytes than
	// firstBudget.
	targetNanos = 5e6
	// mostSlackNanos bounds the slack that a rail gets beyond the target, while processes lose
	// their processor for longer than the target. If they are away 15 of 30 ms, the ratio is 1.00
	// with slack, and 2.83 without. Short messages wait as long behind long ones, but on such a
	// machine they wait anyway.
	mostSlackNanos = 40e6
	// slackMemoryNanos is the time in which slack fades after the rail last ran empty.
	slackMemoryNanos = 1e9
	// batchNanos is the longest time between two deliveries of one progress call.
	batchNanos = 100e3
	// lastingGap is the least gap without a delivery that shows that a process was away, as a share
	// of the time that the room lasts. It is less than 1, because the room began to empty before.
	lastingGap = 0.75
	// stallMemoryNanos is how long a stall counts. TCP's repairs follow each other after 0.2 s and
	// more. A rail that carries only trials shows one loss in 20 after 5 s.
	stallMemoryNanos = 1e9
	// mostStallNanos bounds a stall, so that a rail is used again soon after it recovers: TCP may
	// have waited for seconds.
	mostStallNanos = 1e9
	// baseFactor is how many base round trips the room covers: one in the air, one to grow. With 0,
	// rails with a round trip of 10 ms collapse (1.5 to 42).
	baseFactor = 2
	// memoryNanos is how long a sample counts. A rail unused for longer starts with the least room,
	// and gets a trial. The time is longer than a burst of 32 KB at 5 Mbit/s (52 ms) and than TCP's
	// least retransmission time-out (200 ms). With 1 s, two rails of 100 and 5 Mbit/s that swap
	// take 1.56 for 1 MB.
	memoryNanos = 250e6
	// LeastPiece is the shortest piece, in bytes: 13 ms at 5 Mbit/s. For shorter pieces the cost of
	// a fragment counts. A trial of this length every memoryNanos takes 0.26 Mbit/s.
	LeastPiece = 8 << 10
	// leastPieceNanos is the time of the shortest piece on a fast rail, ten times the cost of a
	// fragment over TCP. mostLeastPiece bounds that piece, in bytes.
	leastPieceNanos = 50e3
	mostLeastPiece  = 64 << 10
	// leastRoom is the least room, in bytes: one piece on the wire, and one whose acknowledgement
	// travels.
	leastRoom = 2 * LeastPiece
	// roomParts is how many pieces the room holds. With 2, a rail's death pauses the other rails
	// twice as long, and twice as many bytes are sent twice.
	roomParts = 4
	// mostRoom bounds the room, in bytes. With 1 MB, a rail of 10 GB/s whose peer is away for 0.2
	// of 1 ms takes 1.26; with 8 MB, short messages wait 0.46 ms behind long ones, not 0.17.
	mostRoom = 2 << 20
	// budgetShare is the share of the delivered bytes that may be sent twice.
	budgetShare = 0.02
	// firstBudget is how many bytes may be sent twice at first: the first messages have delivered
	// nothing yet. Beside a rail that loses 1 to 30 % of its packets, messages of 64 KB to 1 MB are
	// never slower than with the good rail alone (40 seeds each); with 128 KB the worst reach 0.65.
	firstBudget = 256 << 10
	// mostBudget bounds the budget, in bytes: twice the room of a rail, which is the most that one
	// rail can hold up.
	mostBudget = 2 * mostRoom
	// margin is how many times sooner another rail has to deliver before a piece is sent twice, or
	// short messages change their rail: estimates vary, and each change costs.
	margin = 2
	// slowFactor is the ratio of rates from which the lower one is called slow. It is only for
	// reports.
	slowFactor = 4
	// A rail lags if for lagNanos it delivers less than 1/lagFactor of what it could: less than
	// beside seven foreign flows, and for longer than bursts last. Opening another path costs a
	// connection.
	lagFactor = 8
	lagNanos  = 1e9
	// mostRate bounds a rate, in bytes a nanosecond (1 TB/s): a transport that delivers inside the
	// post takes no measurable time.
	mostRate = 1e3
	// leastRate keeps estimates finite: one byte an hour, in bytes a nanosecond.
	leastRate = 1.0 / 3600e9
)
