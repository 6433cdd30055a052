package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
)

// settings sets tunables.
func settings(t *testing.T, keysAndValues ...string) (set tunable.Set) {
	t.Helper()
	for i := 0; i < len(keysAndValues); i += 2 {
		var err error
		set, err = set.With(keysAndValues[i], keysAndValues[i+1], tunable.FromCommandLine)
		require.NoError(t, err)
	}
	return set
}

func TestConfigOfPorts(t *testing.T) {
	of := func(set tunable.Set) Config {
		return configOf(&transport.Env{Settings: set, AsyncProgress: func() func() { return nil }})
	}
	require.Zero(t, of(tunable.Set{}).FirstPort)
	require.Zero(t, of(tunable.Set{}).LastPort)
	cfg := of(settings(t, "tcp.ports", "20000-20099"))
	require.EqualValues(t, 20000, cfg.FirstPort)
	require.EqualValues(t, 20099, cfg.LastPort)
}

// TestOpenWithoutFreePort: an address at which no port is free is left out, with the reason. If no
// other address remains, opening fails.
func TestOpenWithoutFreePort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for include, want := range map[string][]string{"127.0.0.1,127.0.0.2": {"127.0.0.2"}, "127.0.0.1": nil} {
		set := settings(t, "tcp.include", include, "tcp.ports", fmt.Sprintf("%[1]d-%[1]d", port))
		opened, err := openModules(&transport.Env{
			Size: 1, Settings: set, Events: &mate{}, Wakeup: btltest.NewPipeWakeup(t), AsyncProgress: func() func() { return func() {} },
		})
		var ports []string
		for _, rail := range opened.Modules {
			ports = append(ports, rail.Port)
			defer rail.Module.Close()
		}
		require.Equal(t, want, ports)
		why := fmt.Sprintf("listen on 127.0.0.1: none of ports %[1]d to %[1]d is free", port)
		if want == nil {
			require.ErrorContains(t, err, why)
			continue
		}
		require.NoError(t, err)
		require.Len(t, opened.LeftOut, 1)
		require.ErrorContains(t, opened.LeftOut[0], why)
	}
}

// TestOpenWithoutAddress: the error names the user's settings if they are the cause.
func TestOpenWithoutAddress(t *testing.T) {
	for _, c := range []struct {
		settings []string
		want     string
	}{
		{[]string{"tcp.exclude", "0.0.0.0/0,::/0"}, `^rail tcp: tcp.exclude=0.0.0.0/0,::/0: no address is left on .*: it has lo 127.0.0.1`},
		{[]string{"tcp.include", "lo", "tcp.exclude", "lo"}, `^rail tcp: tcp.include=lo, tcp.exclude=lo: no address is left on `},
	} {
		_, err := openModules(&transport.Env{Settings: settings(t, c.settings...)})
		require.Error(t, err)
		require.Regexp(t, c.want, err.Error())
	}
}

// TestUnknownWords: words of the user that name nothing on this machine are listed, unless a rail
// waits for them, as for l0. Other words are not listed.
func TestUnknownWords(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Empty(t, unknownWords(tunable.Set{}))
	require.Empty(t, unknownWords(settings(t, "tcp.include", "lo,127.0.0.1,127.0.0.2,127.0.0.0/8")))
	require.Equal(t, []string{
		"tcp.exclude=none-such: " + host + " has no interface or address none-such",
		"tcp.include=lo,l0,[2001:db8::77]: " + host + " has no interface or address [2001:db8::77]",
	}, unknownWords(settings(t, "tcp.include", "lo,l0,[2001:db8::77]", "tcp.exclude", "none-such")))
}

// TestNobodysWords: single addresses that no rank of the job has are named. Addresses of other
// ranks, and words that a rail waits for, are not.
func TestNobodysWords(t *testing.T) {
	address := func(text string, word uint8) []byte {
		a := railAddress{size: 2, frag: 1 << 16, word: word}
		if text != "" {
			a.addresses = []netAddress{{netip.AddrPortFrom(netip.MustParseAddr(text), 7), 24}}
		}
		b := a.encode()
		_, ok := parseRailAddress(b)
		require.True(t, ok)
		return b
	}
	theirs := [][]byte{address("10.0.0.1", 1), address("10.0.0.2", 2), address("fe80::1", 3)}
	for include, want := range map[string]string{
		"all":                        "",
		"10.0.0.1,10.0.0.2":          "",
		"10.0.0.2,fe80::1":           "",
		"eth9,10.1.0.0/16,10.0.0.1":  "",
		"10.0.0.1,10.0.0.3":          "10.0.0.3",
		"10.0.0.1,[2001:db8::1]":     "[2001:db8::1]",
		"10.0.0.1,10.0.0.9,10.0.0.8": "10.0.0.9, 10.0.0.8",
		"1.0.0.1,1.0.0.2,1.0.0.3,1.0.0.4,1.0.0.5,1.0.0.6": "1.0.0.1, 1.0.0.2, 1.0.0.3, 1.0.0.4, and 2 more",
	} {
		if want != "" {
			want = "no machine of the job has an address of tcp.include, so there is no rail by it: " + want
		}
		require.Equal(t, want, nobodysWords(settings(t, "tcp.include", include), append(theirs, []byte("no address"))), include)
	}
	require.Empty(t, nobodysWords(settings(t, "tcp.include", "10.0.0.1,10.0.0.3", "tcp.exclude", "10.0.0.3"), theirs), "excluded")
	awaited := append(theirs, address("", 2))
	require.Empty(t, nobodysWords(settings(t, "tcp.include", "10.0.0.1,10.0.0.3"), awaited), "a rail waits for it")
}
