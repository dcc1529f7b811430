//go:build conformance

package conformance

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// site is what probes ask.
type site struct {
	*httptest.Server
	code  atomic.Int64
	delay atomic.Int64

	mu   sync.Mutex
	asks []*http.Request
	when []time.Time
}

func newSite(m *machine) *site {
	s := &site{}
	s.code.Store(http.StatusOK)
	s.Server = httptest.NewServer(s)
	m.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Server.Close()
	})
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asks = append(s.asks, r)
	s.when = append(s.when, time.Now())
	s.mu.Unlock()
	select {
	case <-time.After(time.Duration(s.delay.Load())):
	case <-r.Context().Done():
		return
	}
	if r.URL.Path == "/redirect" {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		return
	}
	w.WriteHeader(int(s.code.Load()))
}

func (s *site) asked() ([]*http.Request, []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.asks...), append([]time.Time(nil), s.when...)
}

// probes is a plan's part with probes by name.
func probes(pairs ...any) obj {
	all := obj{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i].(string)] = pairs[i+1]
	}
	return obj{"probes": all}
}

func get(url string, with ...obj) obj {
	target := obj{"url": url}
	for _, more := range with {
		for key, value := range more {
			target[key] = value
		}
	}
	return obj{"httpGet": target}
}

// probing is a rule about what becomes of one probe, which is asked of p.
func probing(name, better string, healthy bool, probe func(m *machine) obj) rule {
	return rule{name: "7/probe/" + name, better: better, test: func(m *machine) {
		m.run(probes("p", probe(m)))
		m.until("the verdict", func(s state) bool {
			p, found := s.probe("p")
			return found && (healthy && p.Healthy || !healthy && p.FailureCount >= 3 && !p.Healthy)
		})
		if p, _ := m.now().probe("p"); p.Healthy != healthy {
			m.Errorf("the status is %+v", p)
		}
	}}
}

func answers(code int64) func(m *machine) obj {
	return func(m *machine) obj {
		s := newSite(m)
		s.code.Store(code)
		return get(s.URL)
	}
}

func init() {
	rules = append(rules,
		probing("answer-200-is-good", "", true, answers(200)),
		probing("answer-204-is-good", "", true, answers(204)),
		probing("answer-404-is-bad", "", false, answers(404)),
		probing("answer-500-is-bad", "", false, answers(500)),
		probing("nobody-answers", "", false, func(m *machine) obj {
			s := newSite(m)
			s.Server.Close()
			return get(s.URL)
		}),
		probing("redirect-same-host-is-followed", "", true, func(m *machine) obj {
			s := newSite(m)
			return get(s.URL + "/redirect?to=/there")
		}),
		probing("redirect-other-host-fails", "", false, func(m *machine) obj {
			s := newSite(m)
			return get(s.URL + "/redirect?to=" + strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + "/")
		}),
		probing("long-answer", "", true, func(m *machine) obj {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(make([]byte, 1<<20))
			}))
			m.t.Cleanup(s.Close)
			return get(s.URL)
		}),
		probing("slower-than-its-timeout", "", false, func(m *machine) obj {
			s := newSite(m)
			s.delay.Store(int64(5 * time.Second))
			return both(get(s.URL), obj{"timeoutSeconds": 1})
		}),
		probing("within-its-timeout", "", true, func(m *machine) obj {
			s := newSite(m)
			s.delay.Store(int64(1500 * time.Millisecond))
			return both(get(s.URL), obj{"timeoutSeconds": 5})
		}),
		probing("no-timeout-means-one-second", "B17", false, func(m *machine) obj {
			s := newSite(m)
			s.delay.Store(int64(4 * time.Second))
			return get(s.URL)
		}),
		probing("tls-unknown-authority", "", false, func(m *machine) obj {
			return get(newCA(m).serve(ok, false).URL)
		}),
		probing("tls-ca-file", "", true, func(m *machine) obj {
			ca := newCA(m)
			m.write("ca.pem", string(ca.pem))
			return get(ca.serve(ok, false).URL, obj{"caCert": m.path("ca.pem")})
		}),
		probing("tls-ca-file-of-another", "", false, func(m *machine) obj {
			m.write("ca.pem", string(newCA(m).pem))
			return get(newCA(m).serve(ok, false).URL, obj{"caCert": m.path("ca.pem")})
		}),
		probing("tls-insecure", "", true, func(m *machine) obj {
			return get(newCA(m).serve(ok, false).URL, obj{"insecure": true})
		}),
		probing("tls-client-certificate", "", true, func(m *machine) obj {
			ca := newCA(m)
			cert, key := ca.issue()
			m.write("ca.pem", string(ca.pem))
			m.write("client.pem", string(cert))
			m.write("client.key", string(key))
			return get(ca.serve(ok, true).URL,
				obj{"caCert": m.path("ca.pem"), "clientCert": m.path("client.pem"), "clientKey": m.path("client.key")})
		}),
		probing("tls-client-certificate-missing", "", false, func(m *machine) obj {
			ca := newCA(m)
			m.write("ca.pem", string(ca.pem))
			return get(ca.serve(ok, true).URL, obj{"caCert": m.path("ca.pem")})
		}),
		probing("tls-files-that-come-later", "", true, func(m *machine) obj {
			ca := newCA(m)
			time.AfterFunc(3*time.Second, func() { m.write("ca.pem", string(ca.pem)) })
			return get(ca.serve(ok, false).URL, obj{"caCert": m.path("ca.pem")})
		}),
		rule{name: "7/probe/the-request", test: func(m *machine) {
			s := newSite(m)
			m.env = []string{"HTTP_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1"}
			m.run(probes("p", get(strings.Replace(s.URL, "127.0.0.1", "localhost", 1)+"/a?b=c")))
			m.until("health", func(now state) bool { p, _ := now.probe("p"); return p.Healthy })
			asks, _ := s.asked()
			r := asks[0]
			if r.Method != http.MethodGet || r.URL.String() != "/a?b=c" || !strings.HasPrefix(r.UserAgent(), "kube-probe/") ||
				r.Header.Get("Accept") != "*/*" ||
				r.Header.Get("Accept-Encoding") != "" || !r.Close {
				m.Errorf("the request is %s %s, %v, close: %t", r.Method, r.URL, r.Header, r.Close)
			}
		}},
		rule{name: "7/probe/no-proxy", test: func(m *machine) {
			forward := newForwardProxy(m)
			m.env = []string{"HTTP_PROXY=" + forward.URL, "NO_PROXY=127.0.0.1"}
			m.run(probes("p", get("http://hub.example.com:1/")))
			m.until("failures", func(s state) bool { p, _ := s.probe("p"); return p.FailureCount >= 2 })
			if forward.count() > 0 {
				m.Errorf("the proxy was asked")
			}
		}},
		rule{name: "7/probe/period", timed: true, test: func(m *machine) {
			s := newSite(m)
			m.run(probes("p", get(s.URL)), map[string]string{"probe-period-seconds": "2"})
			m.until("five questions", func(state) bool { asks, _ := s.asked(); return len(asks) >= 5 })
			_, when := s.asked()
			if pause := when[4].Sub(when[1]) / 3; pause < 1700*time.Millisecond || pause > 4*time.Second {
				m.Errorf("the probe was asked every %s", pause)
			}
		}},
		rule{name: "7/probe/period-fraction", timed: true, test: func(m *machine) {
			s := newSite(m)
			m.run(probes("p", get(s.URL)), map[string]string{"probe-period-seconds": "0.5"})
			m.within(20*time.Second, "ten questions", func(state) bool { asks, _ := s.asked(); return len(asks) >= 10 })
		}},
		rule{name: "7/probe/period-default-5s", timed: true, test: func(m *machine) {
			s := newSite(m)
			m.set(map[string]string{"probe-period-seconds": ""})
			m.run(probes("p", get(s.URL)))
			m.until("four questions", func(state) bool { asks, _ := s.asked(); return len(asks) >= 4 })
			_, when := s.asked()
			if pause := when[3].Sub(when[2]); pause < 4500*time.Millisecond || pause > 8*time.Second {
				m.Errorf("the probe was asked after %s", pause)
			}
		}},
		rule{name: "7/probe/success-threshold", test: func(m *machine) {
			s := newSite(m)
			m.run(probes("p", both(get(s.URL), obj{"successThreshold": 3})))
			m.until("health", func(s state) bool { p, _ := s.probe("p"); return p.Healthy && p.SuccessCount == 3 })
			for _, s := range m.history() {
				if p, _ := s.probe("p"); p.Healthy && p.SuccessCount < 3 {
					m.Errorf("it was healthy with %+v", p)
				}
			}
		}},
		rule{name: "7/probe/healthy-until-failure-threshold", test: func(m *machine) {
			s := newSite(m)
			m.run(probes("p", both(get(s.URL), obj{"failureThreshold": 4})))
			m.until("health", func(s state) bool { p, _ := s.probe("p"); return p.Healthy })
			s.code.Store(500)
			m.until("the end of it", func(s state) bool { p, found := s.probe("p"); return found && !p.Healthy })
			for _, s := range m.history() {
				if p, _ := s.probe("p"); p.FailureCount > 0 && p.FailureCount < 4 && !p.Healthy || p.FailureCount > 0 && p.SuccessCount > 0 {
					m.Errorf("it was unhealthy with %+v", p)
				}
			}
			if p, _ := m.now().probe("p"); p.FailureCount != 4 {
				m.Errorf("the status is %+v", p)
			}
		}},
		rule{name: "7/probe/healthy-again", test: func(m *machine) {
			s := newSite(m)
			s.code.Store(500)
			m.run(probes("p", get(s.URL)))
			m.until("failures", func(s state) bool { p, _ := s.probe("p"); return p.FailureCount == 3 })
			s.code.Store(200)
			if now := m.until("health", func(s state) bool { p, _ := s.probe("p"); return p.Healthy }); !strings.Contains(now.text("probe-statuses"),
				`"p":{"healthy":true,"successCount":1}`) {
				m.Errorf("probe-statuses is %s", now.text("probe-statuses"))
			}
		}},
		rule{name: "7/probe/unhealthy-has-no-key", test: func(m *machine) {
			s := newSite(m)
			s.code.Store(500)
			m.run(probes("p", get(s.URL)))
			now := m.until("failures", func(s state) bool { p, _ := s.probe("p"); return p.FailureCount == 3 })
			if got := now.text("probe-statuses"); got != `{"p":{"failureCount":3}}` {
				m.Errorf("probe-statuses is %s", got)
			}
		}},
		rule{name: "7/probe/side-by-side", timed: true, test: func(m *machine) {
			s := newSite(m)
			s.delay.Store(int64(2 * time.Second))
			slow := both(get(s.URL), obj{"timeoutSeconds": 10})
			m.run(probes("a", slow, "b", slow, "c", slow, "d", slow))
			_, when := s.asked()
			if len(when) < 4 || when[3].Sub(when[0]) > 1500*time.Millisecond {
				m.Errorf("%d questions, the fourth %s after the first", len(when), when[min(3, len(when)-1)].Sub(when[0]))
			}
		}},
		rule{name: "7/probe/statuses-are-checked-again-for-a-new-plan", test: func(m *machine) {
			s := newSite(m)
			m.run(probes("p", get(s.URL)))
			m.until("health", func(s state) bool { p, _ := s.probe("p"); return p.Healthy })
			s.code.Store(500)
			if now := m.run(both(instructions(ran("a")), probes("p", get(s.URL)))); true {
				if p, found := now.probe("p"); !found || p.Healthy {
					m.Errorf("the new plan begins with %+v", p)
				}
			}
		}},
		rule{name: "7/probe/slow-probe-holds-up-no-plan", better: "B17", test: func(m *machine) {
			s := newSite(m)
			m.run(probes("p", both(get(s.URL), obj{"timeoutSeconds": 60})))
			s.delay.Store(int64(50 * time.Second))
			time.Sleep(3 * time.Second)
			begun := time.Now()
			m.run(instructions(ran("a")))
			if took := time.Since(begun); took > 40*time.Second { // of the 50 s that the probe takes
				m.Errorf("the next plan took %s", took)
			}
		}},
	)
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
