package figures

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// reads are the verbs of requests that write nothing.
var reads = []string{"get", "list", "watch"}

// ReadAudit counts the requests of an audit log of the API server that write and that were answered in a period, by who sent them, what
// they write, and the HTTP status. Answers of 409 are conflicts, which write nothing.
func ReadAudit(r io.Reader, from, to time.Time) (map[string]float64, error) {
	counts := map[string]float64{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return counts, nil // the last line may be incomplete
		}
		if err != nil {
			return nil, err
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("decoding the audit log: %w", err)
		}
		if e.Stage == "ResponseComplete" && !slices.Contains(reads, e.Verb) && !e.StageTimestamp.Before(from) && e.StageTimestamp.Before(to) {
			counts[e.String()]++
		}
	}
}

// auditEvent is the part of audit.k8s.io/v1 Event that is read.
type auditEvent struct {
	Stage, Verb, RequestURI, UserAgent string
	ObjectRef                          struct{ Resource, Subresource string }
	ResponseStatus                     struct{ Code int }
	StageTimestamp                     time.Time
}

// String names what events are counted by: the field owner, or the program where a request names none, verb, resource and status.
func (e auditEvent) String() string {
	owner, _, _ := strings.Cut(e.UserAgent, "/")
	if uri, err := url.Parse(e.RequestURI); err == nil && uri.Query().Get("fieldManager") != "" {
		owner = uri.Query().Get("fieldManager")
	}
	resource := strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
	return fmt.Sprintf("%s: %s %s, %d", owner, e.Verb, resource, e.ResponseStatus.Code)
}

// ByHub is the number of requests with which the hub's controllers have written. What agents report through the gateway is not among them,
// nor what Cluster API writes.
func (p Phase) ByHub() float64 {
	var sum float64
	for writer, count := range p.Writers {
		if strings.HasPrefix(writer, "drover-") && !strings.HasPrefix(writer, "drover-gateway:") && isSuccess(writer) {
			sum += count
		}
	}
	return sum
}

// isSuccess is about a key of what ReadAudit returns.
func isSuccess(writer string) bool {
	return strings.HasSuffix(writer, ", 200") || strings.HasSuffix(writer, ", 201")
}
