//go:build e2e

package replicas

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// caller sends requests to clusters through the hub, as a user's program does.
type caller struct {
	http  *http.Client
	token string
}

// newCaller makes one that reaches address, whatever the URL says.
func (e *env) newCaller(address string, timeout time.Duration) *caller {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.authorities)
	dialer := &net.Dialer{Timeout: timeout}
	return &caller{token: e.token, http: &http.Client{Timeout: timeout, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}, MaxIdleConnsPerHost: 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		},
	}}}
}

// call sends one request and returns the status; 0 where there was none.
func (c *caller) call(ctx context.Context, method, cluster, path string, body []byte) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1/k8s/clusters/"+cluster+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s: %.300s", response.Status, text)
	}
	return response.StatusCode, err
}

// probe asks one replica for one cluster, over and over.
type probe struct {
	replica, cluster string

	mu sync.Mutex
	// good is when the last request that was answered had been sent, away the longest time between two of those.
	good time.Time
	away time.Duration
	why  error
}

func (p *probe) run(ctx context.Context, c *caller) {
	for ctx.Err() == nil {
		begin := time.Now()
		_, err := c.call(ctx, http.MethodGet, p.cluster, "/api/v1/namespaces/default", nil)
		p.note(begin, err)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *probe) note(begin time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if away := begin.Sub(p.good); !p.good.IsZero() && away > p.away {
		p.away = away
	}
	if err == nil {
		p.good = begin
	} else {
		p.why = err
	}
}

// load is what users do meanwhile: they read and write through the load balancer, and try again what failed.
type load struct {
	reads, writes, again, lost atomic.Int64
	slowest                    atomic.Int64
	problem                    atomic.Value
}

// giveUp is when a user calls a request lost.
const giveUp = time.Minute

// run sends requests until stopped ends, and has the last ones answered, too.
func (l *load) run(ctx, stopped context.Context, c *caller, cluster, worker string) {
	for i := 0; stopped.Err() == nil; i++ {
		l.do(ctx, &l.reads, func() (int, error) {
			return c.call(ctx, http.MethodGet, cluster, "/api/v1/namespaces/default", nil)
		})
		name := fmt.Sprintf("load-%s-%d", worker, i)
		body, _ := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}})
		l.do(ctx, &l.writes, func() (int, error) {
			code, err := c.call(ctx, http.MethodPost, cluster, "/api/v1/namespaces/default/configmaps", body)
			if code == http.StatusConflict {
				return code, nil // an attempt before had been carried out though its answer was lost
			}
			return code, err
		})
	}
}

func (l *load) do(ctx context.Context, done *atomic.Int64, try func() (int, error)) {
	begin := time.Now()
	for {
		_, err := try()
		took := time.Since(begin)
		if err == nil {
			done.Add(1)
			l.slowest.Store(max(l.slowest.Load(), int64(took)))
			return
		}
		if ctx.Err() != nil {
			return
		}
		if took > giveUp {
			l.lost.Add(1)
			l.problem.Store(err.Error())
			return
		}
		l.again.Add(1)
		time.Sleep(100 * time.Millisecond)
	}
}

// repeated does something up to three times, until it has gone well: any process may stand still for some seconds just then, but a fault is
// there each time.
func repeated(t *testing.T, once func() error) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		err := once()
		if err == nil {
			return
		}
		if attempt == 3 {
			t.Error(err)
			return
		}
		t.Logf("once more, because %v", err)
	}
}

// under runs what happens to a replica while users work, and probes ask the others. It fails where a request was lost, and returns an error
// where a cluster was out of reach of a replica that is on for too long.
func (e *env) under(t *testing.T, others []*hub, happens func()) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	var probes []*probe
	l := &load{}
	for _, a := range e.agents {
		for _, h := range others {
			p := &probe{replica: h.name, cluster: a.cluster}
			probes = append(probes, p)
			running.Go(func() { p.run(ctx, e.newCaller(h.gateway, time.Second)) })
		}
		for i := range 2 {
			worker := fmt.Sprintf("%s-%d-%d", a.cluster, i, time.Now().UnixNano())
			running.Go(func() {
				l.run(t.Context(), ctx, e.newCaller(e.gateways.Addr().String(), 2*time.Second), a.cluster, worker)
			})
		}
	}
	time.Sleep(time.Second)
	until(t, time.Minute, "an answer before anything happens", func() error {
		if l.reads.Load() == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	happens()
	time.Sleep(time.Second)
	ended := time.Now()
	stop()
	running.Wait()

	var worst time.Duration
	var unreachable []error
	for _, p := range probes {
		p.note(ended, nil)
		if p.away > 3*time.Second {
			unreachable = append(unreachable, fmt.Errorf("%s could not reach %s for %s: %w", p.replica, p.cluster, p.away, p.why))
		}
		worst = max(worst, p.away)
	}
	if lost := l.lost.Load(); lost > 0 {
		t.Errorf("%d requests were lost, the last one: %v", lost, l.problem.Load())
	}
	t.Logf("%d reads, %d writes, %d attempts repeated, the slowest took %s; no cluster was unreachable for a replica for longer than %s",
		l.reads.Load(), l.writes.Load(), l.again.Load(), time.Duration(l.slowest.Load()).Round(time.Millisecond), worst.Round(time.Millisecond))
	return errors.Join(unreachable...)
}
