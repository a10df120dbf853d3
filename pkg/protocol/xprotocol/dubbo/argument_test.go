package dubbo

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

func TestArgument(t *testing.T) {
	call := func(types string, arguments ...string) []byte {
		return newFrame(twoWay, 0, hessianStrings("2.0.2", "A", "1.0.0", "m", types), []byte(strings.Join(arguments, "")), mapOf("k", "v"))
	}
	longText := strings.Repeat("a", 40_000)
	for _, c := range []struct {
		name  string
		frame []byte
		want  []string // "": no readable argument
	}{
		{"none", call(""), []string{""}},
		{"string", call("Ljava/lang/String;", "\x04blue"), []string{"blue", ""}},
		{"chunked string", call("Ljava/lang/String;", string(hessianStrings(longText))), []string{longText}},
		{"integers", call("IJS", "\x90", "L\x80\x00\x00\x00\x00\x00\x00\x00", "\xd4\x75\x30"), []string{"0", "-9223372036854775808", "30000"}},
		{"booleans", call("ZZ", "T", "F"), []string{"true", "false"}},
		{"another type", call("DLjava/lang/Object;[I", "\x5c", "N", "\x71\x02[I\x90"), []string{"", "", ""}},
		{"after other arguments", call("Ljava/util/Map;Ljava/lang/String;", "H\x01k\x01vZ", "\x04blue"), []string{"", "blue"}},
		{"generic call", newFrame(twoWay, 0, []byte(genericHead+"\x01m\x70\x07[string\x70\x07[objectH\x07generic\x04trueZ")), []string{"", "", ""}},
		{"another serialization", newFrame(flagRequest|flagTwoWay|6, 0, []byte("whatever")), []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m xprotocol.Message
			m.Set(Codec{}, c.frame)
			var body protocol.Body = &m
			before := slices.Clone(c.frame)
			for i, want := range c.want {
				if got, ok := body.(protocol.Arguments).Argument(i); got != want || ok != (want != "") {
					t.Errorf("argument %d is %.20q, %t; want %.20q", i, got, ok, want)
				}
			}
			if _, ok := m.Argument(-1); ok || !slices.Equal(before, c.frame) {
				t.Error("Argument(-1) returned true, or the frame was changed")
			}
		})
	}
}
