package rating

// The ratios below are the time of messages divided by that of a fluid model of the links, which
// moves bytes at the sum of the rates at each moment. settings_test.go measures them.
const (
	// targetNanos is the time in which a rail delivers what it has room for, beside its round
	// trips. It covers a peer that loses its processor for a time slice (away 5 of 25 ms: 1.02).
	// With 10 ms, short messages wait twice as long behind long ones, and a loss holds more bytes
	// than firstBudget.
	targetNanos = 5e6
	// mostSlackNanos bounds what a rail gets beyond the target while processes lose their processor
	// for longer than that: they are away 15 of 30 ms with a ratio of 1.00, without slack of
	// 2.83. Short messages wait as long behind long ones, but on such a machine they wait anyway.
	mostSlackNanos = 40e6
	// slackMemoryNanos is how long slack lasts after the rail ran dry last.
	slackMemoryNanos = 1e9
	// batchNanos is the longest time between two deliveries of one progress call.
	batchNanos = 100e3
	// lastingGap is which share of the time that the room lasts nothing was delivered when a
	// process was away. It is less than 1, because the room began to empty before.
	lastingGap = 0.75
	// stallMemoryNanos is how long it counts that a rail has stalled: TCP's repairs follow each
	// other after 0.2 s and more, and a rail that carries only trials shows one loss in 20 after 5
	// s.
	stallMemoryNanos = 1e9
	// mostStallNanos bounds what counts of a stall, so that a rail is back soon after it is mended:
	// TCP may have waited for seconds.
	mostStallNanos = 1e9
	// baseFactor is how many base round trips the room covers: one in the air, one to grow. With 0,
	// rails with a round trip of 10 ms collapse (1.5 to 42).
	baseFactor = 2
	// memoryNanos is how long a sample counts, after which a rail's room starts anew, and how often
	// an unused rail is tried. It is longer than a burst of 32 KB at 5 Mbit/s (52 ms) and than
	// TCP's least retransmission time-out (200 ms). With 1 s, two rails of 100 and 5 Mbit/s that
	// swap take 1.56 for 1 MB.
	memoryNanos = 250e6
	// LeastPiece is the shortest piece, in bytes: 13 ms at 5 Mbit/s. For shorter ones the cost of a
	// fragment counts. A trial of this length every memoryNanos takes 0.26 Mbit/s.
	LeastPiece = 8 << 10
	// leastPieceNanos is how long the shortest piece takes on a fast rail, up to mostLeastPiece
	// bytes: ten times the cost of a fragment over TCP.
	leastPieceNanos = 50e3
	mostLeastPiece  = 64 << 10
	// leastRoom is the least room, in bytes: one piece on the wire while the acknowledgement of the
	// other one travels.
	leastRoom = 2 * LeastPiece
	// roomParts is how many pieces the room holds. With 2, the pause of other rails when a rail
	// dies doubles, and so does what is sent twice.
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
	// mostBudget bounds the budget, in bytes: twice the room of a rail, which is all that one rail
	// can hold up.
	mostBudget = 2 * mostRoom
	// margin is how many times sooner another rail has to deliver before a piece is sent twice, or
	// short messages change their rail: estimates vary, and changing to and fro costs.
	margin = 2
	// slowFactor is by how much rates differ when the lower one is called slow. It only informs.
	slowFactor = 4
	// A rail lags if it delivers less than 1/lagFactor of what it could for lagNanos: less than
	// with seven foreign flows on its path, and for longer than bursts last. To open another path
	// costs a connection.
	lagFactor = 8
	lagNanos  = 1e9
	// mostRate bounds a rate, in bytes a nanosecond (1 TB/s): a transport that delivers on return
	// shows no time at all.
	mostRate = 1e3
	// leastRate keeps estimates finite: one byte an hour, in bytes a nanosecond.
	leastRate = 1.0 / 3600e9
)
