package apiproxy

import (
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/drover-dev/drover/hub/util/ratelimit"
)

const (
	// Of each address unauthenticatedBurst events of requests without valid credentials are written at once, and one each minute after that;
	// of all of them together ten times as many. That is 20 MB a day at most, so that unauthenticated clients push no event of a user out of
	// the log.
	unauthenticatedBurst     = 10
	unauthenticatedPerSecond = 1.0 / 60
	unauthenticatedTotal     = 10
	// maxUnauthenticatedText is how many bytes are kept of each text that an unauthenticated client has chosen.
	maxUnauthenticatedText = 512

	omittedAnnotation = annotationPrefix + "omitted-events"
)

// unauthenticatedAudit passes some events of requests without good credentials on, and counts the others. The next event that is written
// says how many were left out before it.
type unauthenticatedAudit struct {
	audit.Backend
	addresses, all *ratelimit.Limiter
	counter        prometheus.Counter

	mu      sync.Mutex
	omitted int
}

func newUnauthenticatedAudit(next audit.Backend, counter prometheus.Counter) *unauthenticatedAudit {
	return &unauthenticatedAudit{
		Backend: next, counter: counter,
		addresses: ratelimit.New(unauthenticatedPerSecond, unauthenticatedBurst),
		all:       ratelimit.New(unauthenticatedPerSecond*unauthenticatedTotal, unauthenticatedBurst*unauthenticatedTotal),
	}
}

// ProcessEvents implements audit.Sink.
func (a *unauthenticatedAudit) ProcessEvents(events ...*auditinternal.Event) bool {
	ok := true
	for _, event := range events {
		if omitted, write := a.admit(event); write {
			shorten(event)
			if omitted > 0 {
				event.Annotations = map[string]string{omittedAnnotation: strconv.Itoa(omitted)}
			}
			ok = a.Backend.ProcessEvents(event) && ok
		}
	}
	return ok
}

// admit reports whether an event is written, and how many were not since the last one.
func (a *unauthenticatedAudit) admit(event *auditinternal.Event) (omitted int, write bool) {
	_, write = a.addresses.Take(ratelimit.AddressKey(sourceOf(event)))
	if write {
		_, write = a.all.Take("")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !write {
		a.omitted++
		a.counter.Inc()
		return 0, false
	}
	omitted, a.omitted = a.omitted, 0
	return omitted, true
}

// sourceOf is the address of the connection. What a client claims to be forwarded for has been removed.
func sourceOf(event *auditinternal.Event) string {
	if len(event.SourceIPs) == 0 {
		return ""
	}
	return event.SourceIPs[len(event.SourceIPs)-1]
}

// shorten bounds the size of an event.
func shorten(event *auditinternal.Event) {
	for _, text := range []*string{&event.RequestURI, &event.UserAgent, &event.Verb} {
		*text = shortened(*text)
	}
	if ref := event.ObjectRef; ref != nil {
		for _, text := range []*string{&ref.Resource, &ref.Namespace, &ref.Name, &ref.APIGroup, &ref.APIVersion, &ref.Subresource} {
			*text = shortened(*text)
		}
	}
}

func shortened(text string) string {
	if len(text) <= maxUnauthenticatedText {
		return text
	}
	return strings.ToValidUTF8(text[:maxUnauthenticatedText], "") + "..."
}
