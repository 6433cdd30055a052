package rails

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/internal/wireup"
)

func TestWhyUnused(t *testing.T) {
	sm, verbs, tcp := wireup.Module{BTL: "sm"}, wireup.Module{BTL: "ibverbs"}, wireup.Module{BTL: "tcp"}
	open := func(btls string, transports ...string) *Rails {
		r := railsOfRank(t, 0, 4, "btl", btls)
		for _, name := range transports {
			r.list = append(r.list, module{transport: name, module: addressModule{}})
		}
		r.Card(false)
		here := wireup.Card{Host: "here", Modules: []wireup.Module{sm, verbs, tcp}}
		there := wireup.Card{Host: "there", Modules: []wireup.Module{sm, tcp, {BTL: hostNameEntry, Address: []byte("node2")}}}
		r.cards = []wireup.Card{here, here, there, there}
		return r
	}
	r := open("self,sm,ibverbs,tcp", "sm", "ibverbs")
	r.missing = []missing{{r.allowed[3], errors.New("rail tcp: no address")}}
	assert.Equal(t, []string{
		"sm not to 2-3: on another host",
		"ibverbs not to 1: spare, because sm is before it in btl=self,sm,ibverbs,tcp; to 2-3: not there on node2",
		"tcp not to 1-3: no address",
	}, r.whyUnused())

	r = open("self,sm,tcp", "sm")
	r.cards, r.cfg.Env.Size = r.cards[:2], 2
	assert.Equal(t, []string{
		"ibverbs not to 1: not in btl=self,sm,tcp",
		"tcp not to 1: not needed, because sm leads to all ranks",
	}, r.whyUnused())

	r.cards, r.cfg.Env.Size = r.cards[:1], 1
	assert.Empty(t, r.whyUnused())
}
