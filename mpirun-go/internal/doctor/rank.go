package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/internal/gate"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
)

// RankArg is the only argument of the doctor's rank.
const RankArg = "mpigo-doctor-rank"

// Line is one line that a rank writes for the launcher. Exactly one field besides Rank is set.
type Line struct {
	Rank     int       `json:"rank"`
	Facts    *Facts    `json:"facts,omitempty"`
	Probe    *Probe    `json:"probe,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
}

// Progress is how many of a rank's probes are done.
type Progress struct {
	Done int `json:"done"`
	Of   int `json:"of"`
}

// progressEvery is how often a rank writes its progress.
const progressEvery = 2 * time.Second

// RunRank is the doctor's rank. It returns the exit status.
func RunRank(out io.Writer) int {
	if err := runRank(out); err != nil {
		fmt.Fprintf(os.Stderr, "mpirun-go doctor: %v\n", err)
		return 1
	}
	return 0
}

func runRank(out io.Writer) error {
	set, err := tunable.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	client, err := wireup.FromEnv(nil)
	if err != nil {
		return err
	}
	secret, err := client.Secret() // mpirun-go has set it
	if err != nil {
		return err
	}
	facts := collect("/", set)
	facts.SharedMemory = trySharedMemory()
	first, last, _ := tunable.ParseRange(set.String("tcp.ports"))
	all := gate.New(maxServed, nil)
	for i := range facts.Interfaces {
		at := &facts.Interfaces[i]
		if !at.used() || !at.Up {
			continue
		}
		l, err := listen(at.Addr, first, last)
		if err != nil {
			facts.TCPListen = append(facts.TCPListen, fmt.Sprintf("%s %v: %s", at.Name, at.Addr, rootCause(err)))
			continue
		}
		defer l.Close()
		at.Port = l.Addr().(*net.TCPAddr).AddrPort().Port()
		answering := &listener{Listener: l, rank: client.Rank(), secret: secret, gate: all}
		go answering.serve()
	}
	w := &lineWriter{out: out, rank: client.Rank()}
	w.write(Line{Facts: &facts})

	hosts, err := exchange(client, facts.Interfaces)
	if err != nil {
		return err
	}
	w.probeAll(plan(client.Rank(), hosts), secret)
	if err := client.Barrier(); err != nil { // the others' probes are done, too
		return err
	}
	if w.err != nil {
		return w.err
	}
	return client.Finalize()
}

// exchange publishes the addresses of this rank's host, and returns the addresses of all hosts.
func exchange(client *wireup.Client, own []Interface) ([][]Interface, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	if err := client.Put(addressKey(client.Rank()), text); err != nil {
		return nil, err
	}
	if err := client.Barrier(); err != nil {
		return nil, err
	}
	hosts := make([][]Interface, client.Size())
	for rank := range hosts {
		text, err := client.Get(addressKey(rank))
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &hosts[rank]); err != nil {
			return nil, fmt.Errorf("addresses of rank %d: %w", rank, err)
		}
	}
	return hosts, nil
}

func addressKey(rank int) string { return fmt.Sprintf("mpigo-doctor-%d", rank) }

// plan lists the probes of a rank: from its host's addresses to those of each other host that ranks
// would pair with them.
func plan(rank int, hosts [][]Interface) (list []Probe) {
	ours, oursTCP := listening(hosts[rank])
	for peer := range hosts {
		if peer == rank {
			continue
		}
		theirs, theirsTCP := listening(hosts[peer])
		for _, pair := range tcp.RailsBetween(oursTCP, theirsTCP, rank < peer) {
			from, to := ours[pair.Local], theirs[pair.Remote]
			if to.Addr.Zone() != "" {
				// A zone has a meaning on its own host only.
				to.Addr = to.Addr.WithZone(from.Addr.Zone())
			}
			list = append(list, Probe{
				From: rank, To: peer, Local: from.Addr, Remote: to.Addr, Port: to.Port, Spare: pair.Extra || pair.Alternate,
			})
		}
	}
	return list
}

// listening returns the addresses that the doctor's rank listens on, also in the form that package
// tcp pairs.
func listening(all []Interface) (list []Interface, forTCP []tcp.Interface) {
	for _, i := range all {
		if i.Port != 0 {
			list = append(list, i)
			forTCP = append(forTCP, tcp.Interface{Name: i.Name, Address: i.Addr, Bits: i.Bits, Word: i.Word, Rail: i.Rail, Up: i.Up})
		}
	}
	return list, forTCP
}

// lineWriter writes lines from several goroutines.
type lineWriter struct {
	out  io.Writer
	rank int

	mu  sync.Mutex
	err error // the first one
}

func (w *lineWriter) write(l Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.Rank = w.rank
	text, err := json.Marshal(l)
	if err == nil {
		_, err = w.out.Write(append(text, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
}

// probeAll runs probes. It writes each result, and the progress every progressEvery.
func (w *lineWriter) probeAll(list []Probe, secret []byte) {
	var done atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				w.write(Line{Progress: &Progress{int(done.Load()), len(list)}})
			}
		}
	}()
	runProbes(list, secret, func(p *Probe) {
		done.Inc()
		w.write(Line{Probe: p})
	})
	close(stop)
	<-stopped
}
