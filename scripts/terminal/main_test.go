package main

import (
	"encoding/xml"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseKeepsColorsAndWraps(t *testing.T) {
	lines := parse("\x1b[1mjob\x1b[m <a>\x1b[K\r\n\x1b[31mabcdefghij\x1b[m\n\n", 8)
	require.Equal(t, [][]run{
		{{"job", styles()["1"]}, {" <a>", ""}},
		{{"abcdefgh", styles()["31"]}},
		{{"ij", styles()["31"]}},
	}, lines)
	require.NoError(t, xml.Unmarshal([]byte(draw("a <b>\n\n\x1b[36m▁█\x1b[m", 80, "x")), &struct{}{}))
}

func TestLastScreenIsTheOneBeforeTheEnd(t *testing.T) {
	require.Equal(t, "two", lastScreen("\x1b[?1049h\x1b[Hone\x1b[J\x1b[Htwo\x1b[?1049lbye"))
	require.Equal(t, "plain", lastScreen("plain"))
}
