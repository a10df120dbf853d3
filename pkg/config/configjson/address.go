package configjson

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config/document"
)

const localhost = "localhost"

// numericHost replaces localhost with 127.0.0.1, without a DNS lookup.
func numericHost(address string) string {
	if port, ok := strings.CutPrefix(address, localhost+":"); ok {
		return "127.0.0.1:" + port
	}
	return address
}

// splitPort splits host:port and validates the port.
func splitPort(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", fmt.Errorf("found %q, expected ip:port, [ipv6]:port or the path of a unix socket", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", "", fmt.Errorf("%q is not a valid port: expected a number from 0 to 65535", port)
	}
	return host, port, nil
}

// parseListenAddress validates an ip:port to listen on. An empty IP means all addresses.
func parseListenAddress(address string) (string, error) {
	address = numericHost(address)
	host, _, err := splitPort(address)
	if err != nil {
		return "", err
	}
	if host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", fmt.Errorf("found %q, expected an IP address before the port", host)
		}
	}
	return address, nil
}

// parseDialAddress validates an address to connect to; isName reports whether its host is a DNS
// name.
func parseDialAddress(address string) (out string, isName bool, err error) {
	address, isSocket, err := unixaddr.Parse(address)
	if err != nil || isSocket {
		return address, false, err
	}
	address = numericHost(address)
	host, port, err := splitPort(address)
	switch {
	case err != nil:
		return "", false, err
	case port == "0":
		return "", false, fmt.Errorf("found %q, expected a port from 1 to 65535", address)
	case host == "":
		return "", false, fmt.Errorf("found %q, expected a host before the port", address)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return address, false, nil
	}
	if !isHostName(host) {
		return "", false, fmt.Errorf("found %q, expected an IP address or a host name before the port", host)
	}
	return address, true, nil
}

// isHostName reports whether s has the form of a DNS name. It rejects text that consists of digits
// and dots only, which is a mistyped IP address.
func isHostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 || strings.Trim(s, "0123456789.") == "" {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return false
			}
		}
	}
	return true
}

// parseRanges parses address ranges, each a string or an object. objectText returns the text of an
// object, or false if it has reported an error.
func (in *input) parseRanges(list []document.Node, objectText func(document.Node) (string, bool)) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range list {
		text := n.Text()
		if n.Kind() == document.Object {
			var ok bool
			if text, ok = objectText(n); !ok {
				continue
			}
		}
		if !n.Exists() {
			continue // already reported
		}
		if p, err := parseAddressRange(text); err != nil {
			in.report.Errorf(n, "%v", err)
		} else {
			out = append(out, p)
		}
	}
	return out
}

func parseAddressRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("found %q, expected an address range like \"10.0.0.0/8\"", text)
	}
	return p.Masked(), nil
}
