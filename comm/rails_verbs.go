package comm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/libibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
)

// openVerbs makes the rails over the devices of this machine. Lock held.
func (r *rails) openVerbs(bell *progress.PipeBell) error {
	library, err := libibverbs.New()
	if err != nil {
		return fmt.Errorf("rail ibverbs: %w", err)
	}
	var provider verbs.Provider = library
	if r.hook.Verbs != nil {
		provider = r.hook.Verbs(provider)
	}
	return r.openPorts(provider, localRankOf(r.client), bell)
}

// openPorts makes a rail of each port that the user has named, which has to work, or of each that
// is up. Of the latter those that cannot be used are left out, as long as there is another. local
// is as ParsePorts takes it. Lock held.
func (r *rails) openPorts(provider verbs.Provider, local int, bell *progress.PipeBell) error {
	set := r.job.settings
	var ports []ibverbs.PortName
	var refused []error
	var err error
	list := set.List("ibverbs.devices")
	all := slices.Equal(list, []string{"all"})
	if all {
		ports, refused, err = ibverbs.AllPorts(provider)
	} else {
		ports, err = ibverbs.ParsePorts(list, local)
	}
	if err != nil {
		return fmt.Errorf("rail ibverbs: %w", err)
	}
	siblings := new(ibverbs.Siblings)
	var made []rail
	for _, p := range ports {
		cfg := verbsConfig(set)
		cfg.Rank, cfg.Size, cfg.Events, cfg.Bell, cfg.Wakeup = r.job.rank, r.job.size, r.job.pml, bell, r.kick()
		cfg.Siblings = siblings
		cfg.Rail, cfg.Provider, cfg.Device, cfg.Port = fmt.Sprintf("ibverbs:%s/%d", p.Device, p.Port), provider, p.Device, p.Port
		m, err := ibverbs.New(cfg)
		if err != nil && all {
			refused = append(refused, err)
			continue
		}
		if err != nil { // all of them or none: the nth of one rank leads to the nth of the other
			for _, l := range made {
				err = errors.Join(err, l.module.Close())
			}
			return err
		}
		made = append(made, rail{name: "ibverbs", nth: len(made), port: fmt.Sprintf("%s/%d", p.Device, p.Port), module: m, reaches: func(int, wireup.Card) bool { return true }})
	}
	if len(made) == 0 {
		return noUsablePort(refused)
	}
	r.leaveOut("ibverbs", refused)
	for _, l := range made {
		r.job.addModule(l.module)
	}
	r.list = append(r.list, made...)
	return nil
}

// noUsablePort says in one line why none of the ports that are up is a rail.
func noUsablePort(refused []error) error {
	err := fmt.Errorf("rail ibverbs: no RDMA port can be used: %w", refused[0])
	for _, why := range refused[1:] {
		err = fmt.Errorf("%w; %w", err, why)
	}
	return err
}

// verbsConfig is what the user's settings mean to the rails over verbs.
func verbsConfig(set tunable.Set) ibverbs.Config {
	cfg := ibverbs.Config{
		FragBytes:  int(set.Bytes("ibverbs.frag.bytes")) + btl.MaxHeaderBytes,
		RecvDepth:  int(set.Int("ibverbs.recv.depth")),
		SendDepth:  int(set.Int("ibverbs.send.depth")),
		EagerPeers: int(set.Int("ibverbs.eager.peers")),
		EagerAfter: int(set.Int("ibverbs.eager.after")),
		AckTimeout: uint8(set.Int("ibverbs.timeout")),
		RetryCount: uint8(set.Int("ibverbs.retry")),
		Deadline:   set.Duration("ibverbs.deadline"),
		// One bound on silence, whether of a peer that is asked for a connection or of one that there is.
		ConnectTimeout: set.Duration("ibverbs.deadline"),
		PortGrace:      set.Duration("ibverbs.port.grace"),
	}
	if cfg.KeepAlive = set.Duration("ibverbs.keepalive"); cfg.KeepAlive == 0 {
		cfg.KeepAlive = -1 // which is what a module calls never
	}
	if gid := int(set.Int("ibverbs.gid")); gid >= 0 {
		cfg.GIDIndex = &gid
	}
	return cfg
}

// shareSecret gives the job's secret to the rails that prove it. The manager has told it in the first barrier.
func (r *rails) shareSecret() error {
	var secret []byte
	for _, l := range r.list {
		m, wants := l.module.(interface{ SetSecret(secret []byte) })
		if !wants {
			continue
		}
		if secret == nil {
			var err error
			if secret, err = r.client.Secret(); err != nil {
				return err
			}
		}
		r.job.eng.Lock()
		m.SetSecret(secret)
		r.job.eng.Unlock()
	}
	return nil
}

// localRankOf is how many-th of the ranks of its machine a rank is, from 0.
func localRankOf(client *wireup.Client) int {
	nodeOf, err := client.NodeOf()
	if err != nil || len(nodeOf) != client.Size() {
		return client.Rank() // the manager does not say: as if all were on one machine
	}
	n := 0
	for rank := range client.Rank() {
		if nodeOf[rank] == nodeOf[client.Rank()] {
			n++
		}
	}
	return n
}
