package proxy

import (
	"fmt"
	"io"
	"os"

	"github.com/weft-proxy/weft/pkg/router"
)

// readDirectResponse returns route with the body of its direct response, if that is in a file.
func readDirectResponse(route *router.Route) (*router.Route, error) {
	c := route.Config.DirectResponse
	if c == nil || c.BodyFile == "" {
		return route, nil
	}
	f, err := os.Open(c.BodyFile)
	if err != nil {
		return nil, fmt.Errorf("direct_response: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	var in io.Reader = f
	if c.MaxFileSize > 0 {
		in = io.LimitReader(f, c.MaxFileSize+1)
	}
	body, err := io.ReadAll(in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("direct_response: %w", err)
	case c.MaxFileSize > 0 && int64(len(body)) > c.MaxFileSize:
		return nil, fmt.Errorf("direct_response: the file %s has more than %d bytes", c.BodyFile, c.MaxFileSize)
	}
	return route.WithBody(string(body))
}
