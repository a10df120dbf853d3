package dubbostream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// defaultLabelsFile is the labels file of a pod with an Istio sidecar.
const defaultLabelsFile = "/etc/istio/pod/labels"

// readLabels returns the labels in a file, in file order. It returns none if the default file does
// not exist, because the process may not run in a pod.
func readLabels(name string) ([]protocol.Field, error) {
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && name == defaultLabelsFile:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("pod_labels_file: %w", err)
	}
	labels, err := parseLabels(string(text))
	if err != nil {
		return nil, fmt.Errorf("pod_labels_file: %s: %w", name, err)
	}
	return labels, nil
}

// parseLabels parses lines such as version="v1"; the quotes are optional.
func parseLabels(text string) ([]protocol.Field, error) {
	var labels []protocol.Field
	lineNumber := 0
	for line := range strings.Lines(text) {
		lineNumber++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("line %d is %q, expected name=\"value\"", lineNumber, line)
		}
		if strings.HasPrefix(value, `"`) {
			var err error
			if value, err = strconv.Unquote(value); err != nil {
				return nil, fmt.Errorf("line %d: the value of %s is not a quoted string", lineNumber, name)
			}
		}
		labels = append(labels, protocol.Field{Name: name, Value: value})
	}
	return labels, nil
}

// withoutRoutingLabels returns the labels that may become headers. It omits labels named like a
// routing attachment, which would select another service or another provider group.
func withoutRoutingLabels(labels []protocol.Field) []protocol.Field {
	return slices.DeleteFunc(slices.Clone(labels), func(l protocol.Field) bool {
		for _, name := range [...]string{xprotocol.FieldService, xprotocol.FieldMethod, xprotocol.FieldVersion, xprotocol.FieldGroup} {
			if protocol.EqualFold(l.Name, name) {
				return true
			}
		}
		return false
	})
}
