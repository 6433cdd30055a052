package ibverbs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// PortName is a port of a device.
type PortName struct {
	Device string
	Port   int // counted from 1
}

func (p PortName) String() string { return p.Device + ":" + strconv.Itoa(p.Port) }

// ErrNoPort: no port of any device is up and has an address.
var ErrNoPort = errors.New("no RDMA port is up and has an address")

// ParsePorts reads a list of rails: "mlx5_0" and "mlx5_1:2" are two of them, port 1 of the first
// device and port 2 of the second. "mlx5_0|mlx5_1" is one rail, for which the ranks of a machine
// take the devices in turn: local is the number of this rank among them, from 0.
func ParsePorts(rails []string, local int) ([]PortName, error) {
	var ports []PortName
	for _, rail := range rails {
		choices := strings.Split(rail, "|")
		name, number, hasPort := strings.Cut(strings.TrimSpace(choices[local%len(choices)]), ":")
		p := PortName{Device: name, Port: 1}
		if hasPort {
			var err error
			if p.Port, err = strconv.Atoi(number); err != nil || p.Port < 1 || p.Port > 255 {
				return nil, fmt.Errorf("port %q of RDMA device %q: %w: want a number from 1 to 255", number, name, verbs.ErrInvalid)
			}
		}
		if name == "" {
			return nil, fmt.Errorf("list of RDMA devices %q: %w: an empty name", rails, verbs.ErrInvalid)
		}
		if slices.Contains(ports, p) {
			return nil, fmt.Errorf("list of RDMA devices %q: %w: %v twice", rails, verbs.ErrInvalid, p)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// AllPorts returns the ports of all devices that are up and have an address, in the order of the
// devices. unusable has an error for each device that cannot be opened, and for each port that is
// up but has no address. A port that is down is not an error. If there is no port, the error wraps
// ErrNoPort and says what is wrong with each port.
func AllPorts(provider verbs.Provider) (ports []PortName, unusable []error, err error) {
	names, err := provider.Devices()
	if err != nil {
		return nil, nil, err
	}
	var why []string
	for _, name := range names {
		more, problems := portsOf(provider, name)
		ports = append(ports, more...)
		for _, err := range problems {
			why = append(why, err.Error())
			if !errors.As(err, new(notUp)) {
				unusable = append(unusable, err)
			}
		}
	}
	switch {
	case len(ports) > 0:
		return ports, unusable, nil
	case len(names) == 0:
		return nil, nil, fmt.Errorf("%w: there is no RDMA device", ErrNoPort)
	}
	return nil, nil, fmt.Errorf("%w: %s", ErrNoPort, strings.Join(why, "; "))
}

// notUp is the error of a port that is not up.
type notUp struct {
	port  PortName
	state verbs.PortState
}

func (e notUp) Error() string { return fmt.Sprintf("%v is %v", e.port, e.state) }

func portsOf(provider verbs.Provider, name string) (ports []PortName, problems []error) {
	dev, err := provider.Open(name)
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", name, err)}
	}
	defer dev.Close()
	attr, err := dev.Query()
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", name, err)}
	}
	for port := 1; port <= attr.Ports; port++ {
		p := PortName{name, port}
		h := hca{dev: dev}
		switch err := h.queryPort(&Config{Device: name, Port: port}); {
		case err != nil:
			problems = append(problems, fmt.Errorf("%v: %w", p, err))
		case !h.port.State.Up():
			problems = append(problems, notUp{p, h.port.State})
		default:
			ports = append(ports, p)
		}
	}
	return ports, problems
}
