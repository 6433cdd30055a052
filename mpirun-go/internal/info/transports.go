package info

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/btl/ibverbs/libibverbs"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/internal/rdma"
	"github.com/mpigo/mpigo/internal/tunable"
)

// Transport says whether programs like this one can use a transport on this machine.
type Transport struct {
	Name   string `json:"name"`
	Usable bool   `json:"usable"`
	Why    string `json:"why"` // why not, or over what
}

// transports describes all transports, in the order of preference. openLibrary opens libibverbs. It
// is not called without devices.
func transports(devices []rdma.Device, set tunable.Set, openLibrary func() error) (list []Transport) {
	allowed := set.List("btl")
	for _, name := range tunable.Transports() {
		usable, why := false, "not in btl="+strings.Join(allowed, ",")
		if slices.Contains(allowed, name) {
			switch name {
			case tunable.TransportSelf:
				usable, why = true, "a rank's messages to itself"
			case tunable.TransportSM:
				usable, why = true, "ranks of this machine"
			case tunable.TransportIBVerbs:
				usable, why = verbs(devices, openLibrary)
			case tunable.TransportTCP:
				usable, why = overTCP(set)
			}
		}
		list = append(list, Transport{name, usable, why})
	}
	return list
}

// verbs says whether ibverbs is usable, and over which ports or why not.
func verbs(devices []rdma.Device, openLibrary func() error) (usable bool, why string) {
	if len(devices) == 0 {
		return false, "no device in /sys/class/infiniband"
	}
	if err := openLibrary(); err != nil {
		return false, err.Error()
	}
	var up, down []string
	for _, d := range devices {
		for _, p := range d.Ports {
			name := fmt.Sprintf("%s/%d", d.Name, p.Number)
			if p.State == "ACTIVE" {
				up = append(up, name)
			} else {
				down = append(down, name+" is "+cmp.Or(p.State, "in an unknown state"))
			}
		}
	}
	if len(up) == 0 {
		return false, "no port is up: " + cmp.Or(strings.Join(down, ", "), "the devices have none")
	}
	return true, strings.Join(up, ", ")
}

// openLibrary opens libibverbs as a program does.
func openLibrary() error {
	_, err := libibverbs.New()
	return err
}

// overTCP says whether tcp is usable, and over which addresses or why not.
func overTCP(set tunable.Set) (usable bool, why string) {
	found, _, _, err := tcp.Survey(set)
	if err != nil {
		return false, err.Error()
	}
	var addresses []string
	for _, s := range found {
		if s.Why == "" {
			addresses = append(addresses, s.Name+" "+s.Address.String())
		}
	}
	return true, strings.Join(addresses, ", ")
}
