package registry

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// ParseServers parses "host:port,host:port", the part of Options.Address that several types share.
// port is the default port; IPv6 addresses are in brackets. ParseServers returns each server in the
// notation of net.Dial.
func ParseServers(list, port string) ([]string, error) {
	var servers []string
	for server := range strings.SplitSeq(list, ",") {
		server = strings.TrimSpace(server)
		host, serverPort, err := net.SplitHostPort(server)
		var addrErr *net.AddrError
		switch {
		case errors.As(err, &addrErr) && addrErr.Err == "missing port in address":
			host, serverPort = strings.Trim(server, "[]"), port
		case err != nil:
			return nil, err
		}
		if host == "" || serverPort == "" {
			return nil, fmt.Errorf("%q is not a valid host:port", server)
		}
		servers = append(servers, net.JoinHostPort(host, serverPort))
	}
	return servers, nil
}
