package apiproxy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// recordedEvents keeps audit events.
type recordedEvents struct {
	audit.Backend
	events []*auditinternal.Event
}

func (w *recordedEvents) ProcessEvents(events ...*auditinternal.Event) bool {
	w.events = append(w.events, events...)
	return true
}

// TestUnauthenticatedAudit: of many unauthenticated requests only some are logged, with the number of those that are not.
func TestUnauthenticatedAudit(t *testing.T) {
	out, counter := &recordedEvents{}, prometheus.NewCounter(prometheus.CounterOpts{Name: "omitted"})
	unauthenticated := newUnauthenticatedAudit(out, counter)
	send := func(address string) {
		unauthenticated.ProcessEvents(&auditinternal.Event{SourceIPs: []string{address},
			RequestURI: "/k8s/clusters/" + strings.Repeat("x", 40000)})
	}
	for range 1000 {
		send("192.0.2.1")
	}
	if len(out.events) != unauthenticatedBurst {
		t.Fatalf("%d events of one address are written, want %d", len(out.events), unauthenticatedBurst)
	}
	send("192.0.2.2")
	last := out.events[len(out.events)-1]
	if last.SourceIPs[0] != "192.0.2.2" || last.Annotations[omittedAnnotation] != strconv.Itoa(1000-unauthenticatedBurst) {
		t.Errorf("the event of another address is %+v", last)
	}
	if len(last.RequestURI) > maxUnauthenticatedText+3 {
		t.Errorf("its URI has %d bytes", len(last.RequestURI))
	}
	for i := range 10000 {
		send(fmt.Sprintf("10.1.%d.%d", i/200, i%200))
	}
	// The clock runs on while the test does, so that some more may be let in.
	if got := len(out.events); got < unauthenticatedBurst*unauthenticatedTotal || got > 2*unauthenticatedBurst*unauthenticatedTotal {
		t.Errorf("%d events of many addresses are written", got)
	}
	omitted := 0
	for _, event := range out.events {
		n, _ := strconv.Atoi(event.Annotations[omittedAnnotation])
		omitted += n
	}
	if got := int(testutil.ToFloat64(counter)); got != 11001-len(out.events) || got != omitted+unauthenticated.omitted {
		t.Errorf("%d events were counted as left out, %d are reported and %d will be, of %d", got, omitted, unauthenticated.omitted,
			11001-len(out.events))
	}
}
