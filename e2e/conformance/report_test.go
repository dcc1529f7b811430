//go:build conformance

package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"
)

// refuseWrites answers every write with an error.
func refuseWrites(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		status(w, code, "InternalError")
		return true
	}
}

// waiting is an instruction that runs until the file go is there.
func waiting(name string, more ...string) obj {
	return ran(name, append([]string{"while [ ! -e $M/go ]; do sleep 0.1; done"}, more...)...)
}

// whileItRuns starts a plan of one instruction that ends with a code, and does something before that ends.
func whileItRuns(m *machine, code string, keys map[string]string, do func()) string {
	sum := m.deliver(instructions(waiting("a", "echo said", "exit "+code)), keys)
	m.start()
	m.until("the instruction", func(state) bool { return m.lines("a") == 1 })
	do()
	m.write("go", "")
	return sum
}

// conflict lets another writer come first, just before the agent's next write.
func (m *machine) conflict() {
	var done atomic.Bool
	m.proxy.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && done.CompareAndSwap(false, true) {
			m.set(map[string]string{"of-others": "x"})
		}
		return false
	})
}

func init() {
	checksums, once := map[string]string(nil), map[string]string{"plan-state": "pending", "max-failures": "1"}
	rules = append(rules,
		rule{name: "3.6/report/after-the-first-answers-of-probes", test: func(m *machine) {
			site := newSite(m)
			sum := m.deliver(both(instructions(ran("a")), probes("p", obj{"initialDelaySeconds": 3, "httpGet": obj{"url": site.URL}})))
			m.start()
			m.until("the instruction", func(state) bool { return m.lines("a") == 1 })
			ended := m.changedAt("a")
			s := m.until("success", func(s state) bool { return s.applied(sum) })
			if probe, found := s.probe("p"); !found || !probe.Healthy || s.at.Sub(ended) < 2*time.Second {
				m.Errorf("%s after the instruction the report says of the probe %t %+v", s.at.Sub(ended), found, probe)
			}
		}},
		rule{name: "3.6/report/nothing-new-is-not-written", test: func(m *machine) {
			site := newSite(m)
			m.run(both(instructions(ran("a")), probes("p", obj{"httpGet": obj{"url": site.URL}}),
				obj{"periodicInstructions": []obj{sh("q", "echo q", obj{"periodSeconds": 600})}}))
			time.Sleep(3 * time.Second)
			m.rests(6*time.Second, "the version of the Secret", func() string { return m.now().object.ResourceVersion })
		}},
		rule{name: "3.6/report/at-rest-one-watch", test: func(m *machine) {
			m.run(both(instructions(ran("a"))))
			time.Sleep(3 * time.Second)
			m.rests(8*time.Second, "the number of requests, with the last one,", func() string {
				all := m.proxy.seen()
				return fmt.Sprint(len(all), " ", all[len(all)-1].url)
			})
		}},
		rule{name: "3.6/report/conflict-after-success", test: conflicts("0", checksums)},
		rule{name: "3.6/report/conflict-after-success-with-state", test: conflicts("0", pendingState)},
		rule{name: "3.6/report/conflict-after-failure", better: "B5", test: conflicts("1", checksums)},
		rule{name: "3.6/report/conflict-after-failure-with-state", better: "B5", test: conflicts("1", once)},
		rule{name: "3.6/report/conflict-while-it-is-set-in-progress", test: func(m *machine) {
			m.conflict()
			sum := m.pending(instructions(ran("a")))
			m.start()
			m.until("success", func(s state) bool { return s.applied(sum) && s.text("of-others") == "x" })
			if m.lines("a") != 1 {
				m.Errorf("it ran %d times", m.lines("a"))
			}
		}},
		rule{name: "3.6/report/hub-cannot-write-for-a-while", better: "B5", test: func(m *machine) {
			sum := whileItRuns(m, "0", pendingState, func() { m.proxy.intercept(refuseWrites(500)) })
			time.Sleep(4 * time.Second)
			m.proxy.intercept(nil)
			reportedOnce(m, sum, true)
		}},
		rule{name: "3.6/report/hub-limits-the-rate", better: "B5", test: func(m *machine) {
			sum := whileItRuns(m, "0", pendingState, func() { m.proxy.intercept(refuseWrites(429)) })
			time.Sleep(4 * time.Second)
			m.proxy.intercept(nil)
			reportedOnce(m, sum, true)
		}},
		rule{name: "3.6/report/hub-away-during-a-success", better: "B5", test: away("0", pendingState, false)},
		rule{name: "3.6/report/hub-away-during-a-failure", better: "B5", test: away("1", once, false)},
		rule{name: "3.6/report/hub-away-during-a-success-by-checksum", better: "B5", test: away("0", checksums, false)},
		rule{name: "3.6/report/hub-away-and-agent-killed", better: "crash", test: away("0", pendingState, true)},
		rule{name: "3.6/report/hub-away-and-agent-killed-by-checksum", better: "crash", test: away("0", checksums, true)},
		rule{name: "3.3/watch/gone", test: func(m *machine) {
			m.run(instructions(ran("a")))
			var sent atomic.Bool
			m.proxy.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if (request{url: r.URL}).isWatch() && sent.CompareAndSwap(false, true) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old","code":410}}`+"\n")
					return true
				}
				return false
			})
			m.proxy.CloseClientConnections()
			m.run(instructions(ran("b")))
			if m.lines("a") != 1 {
				m.Errorf("the first plan ran %d times", m.lines("a"))
			}
		}},
		rule{name: "3.3/watch/hub-restored-from-a-backup", better: "B6", test: func(m *machine) {
			later := newVersions(m)
			m.run(instructions(ran("a")))
			later.Store(0)
			m.proxy.CloseClientConnections()
			m.run(instructions(ran("b")))
			if m.lines("a") != 1 || m.crashes() > 0 {
				m.Errorf("the first plan ran %d times, the agent ended %d times", m.lines("a"), m.crashes())
			}
		}},
		rule{name: "3.3/watch/hub-restored-from-a-backup-of-before-the-report", better: "B6", test: func(m *machine) {
			later := newVersions(m)
			plan := instructions(ran("a"))
			sum := m.deliver(plan, pendingState)
			m.start()
			m.until("success", func(s state) bool { return s.applied(sum) })
			later.Store(0)
			// The backup was taken while the plan was in progress.
			m.set(map[string]string{"plan-state": "in-progress", "applied-checksum": "", "applied-output": "", "success-count": "",
				"last-apply-time": ""})
			m.proxy.CloseClientConnections()
			m.until("the report of what was done", func(s state) bool { return s.applied(sum) && s.text("plan-state") == "succeeded" })
			if m.lines("a") != 1 {
				m.Errorf("the plan ran %d times", m.lines("a"))
			}
		}},
	)
}

// conflicts is a test in which the report meets another writer.
func conflicts(code string, keys map[string]string) func(*machine) {
	return func(m *machine) {
		sum := whileItRuns(m, code, keys, m.conflict)
		reportedOnce(m, sum, code == "0")
		if m.now().text("of-others") != "x" {
			m.Errorf("what the other writer wrote is gone")
		}
	}
}

// away is a test in which the hub cannot be reached when the plan ends, for longer than any agent tries at once.
func away(code string, keys map[string]string, kill bool) func(*machine) {
	return func(m *machine) {
		sum := whileItRuns(m, code, keys, m.proxy.leave)
		time.Sleep(6 * time.Second)
		if kill {
			m.kill()
			m.start()
			time.Sleep(2 * time.Second)
		}
		m.proxy.back()
		reportedOnce(m, sum, code == "0")
	}
}

// reportedOnce waits for the report of a plan and fails when it ran more than once, or the agent ended meanwhile.
func reportedOnce(m *machine, sum string, success bool) {
	m.until("the report", func(s state) bool {
		if success {
			return s.applied(sum) && s.outputs("applied-output")["a"] == "said\n"
		}
		return s.failed(sum) && s.outputs("failed-output")["a"] == "said\n"
	})
	if m.lines("a") != 1 || m.crashes() > 0 {
		m.Errorf("the plan ran %d times, the agent ended %d times", m.lines("a"), m.crashes())
	}
}

var versionField = regexp.MustCompile(`"resourceVersion":"([0-9]+)"`)

// newVersions lets the agent see resource versions that are a million ahead of the true ones. When that is taken back, the hub looks
// as one does that was restored from a backup: same objects, lower versions, and a server that finds the agent's versions too large.
func newVersions(m *machine) *atomic.Int64 {
	ahead := &atomic.Int64{}
	ahead.Store(1_000_000)
	shift := func(raw []byte, by int64) []byte {
		return versionField.ReplaceAllFunc(raw, func(match []byte) []byte {
			n, _ := strconv.ParseInt(string(versionField.FindSubmatch(match)[1]), 10, 64)
			if n > 0 && n+by > 0 {
				n += by
			}
			return []byte(`"resourceVersion":"` + strconv.FormatInt(n, 10) + `"`)
		})
	}
	m.proxy.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Set("Accept", "application/json")
		r.Header.Del("Accept-Encoding")
		query := r.URL.Query()
		if n, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64); err == nil && n > ahead.Load() {
			query.Set("resourceVersion", strconv.FormatInt(n-ahead.Load(), 10))
			r.URL.RawQuery = query.Encode()
		}
		if r.Method == http.MethodPut {
			changed := shift(body(r), -ahead.Load())
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(changed)), int64(len(changed))
		}
		return false
	})
	m.proxy.alter(func(r *http.Response) error {
		by, from := ahead.Load(), r.Body
		read, write := io.Pipe()
		go func() {
			defer from.Close()
			lines := bufio.NewReader(from)
			for {
				line, err := lines.ReadBytes('\n')
				if _, failed := write.Write(shift(line, by)); failed != nil {
					return
				}
				if err != nil {
					write.CloseWithError(err)
					return
				}
			}
		}()
		r.Body = struct {
			io.Reader
			io.Closer
		}{read, closers{read, from}}
		r.ContentLength = -1
		r.Header.Del("Content-Length")
		return nil
	})
	return ahead
}

type closers []io.Closer

func (c closers) Close() error {
	for _, each := range c {
		_ = each.Close()
	}
	return nil
}
