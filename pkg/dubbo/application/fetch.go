package application

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/weft-proxy/weft/pkg/registry"
)

// MetadataSource returns the metadata that applications published. registry.Registry implements it.
type MetadataSource interface {
	Metadata(ctx context.Context, application, revision string) ([]byte, error)
}

var errNoMetadataService = errors.New("the instance has no port to fetch its metadata over Dubbo")

// Fetch returns what an instance provides: from the registry, or from the instance if its
// application does not store metadata in the registry. ctx bounds the time.
func Fetch(ctx context.Context, source MetadataSource, i registry.Instance) (*MetadataInfo, error) {
	revision := Revision(i)
	info, err := fetch(ctx, source, i, revision)
	if err != nil {
		return nil, fmt.Errorf("metadata of %s, revision %s: %w", i.Application, revision, err)
	}
	return info, nil
}

func fetch(ctx context.Context, source MetadataSource, i registry.Instance, revision string) (*MetadataInfo, error) {
	if i.Metadata[keyStorage] == storageRemote {
		text, err := source.Metadata(ctx, i.Application, revision)
		if err != nil {
			return nil, err
		}
		return ParseMetadataInfo(text)
	}
	port, version := metadataPort(i)
	if port == 0 {
		return nil, errNoMetadataService
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(i.Host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // interrupts the call
	defer stop()
	defer func() { _ = conn.Close() }() // each connection serves one call
	body, err := requestMetadata(conn, i.Application, version, revision)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return parseResponse(body)
}
