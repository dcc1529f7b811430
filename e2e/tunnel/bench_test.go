package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"

	agent "github.com/drover-dev/drover/agent/tunnel"
	"github.com/drover-dev/drover/hub/testenv/tunneltest"
	"github.com/drover-dev/drover/hub/testenv/wait"
)

// setups are what is compared: which hub, and whose agents.
var setups = []setup{{"library", "library", false}, {"hub", "hub", false}, {"hub+agent", "hub", true}}

type setup struct {
	name, hub string
	ownAgent  bool
}

// rounds is how often everything is measured, by turns, so that what else the machine does hits all alike. Medians are reported.
const rounds = 3

// process is a hub in a process of its own.
type process struct {
	setup
	agents, orders string
	kill           func()
}

func start(b *testing.B, s setup, listen string) *process {
	b.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), hubKindEnv+"="+s.hub, hubListenEnv+"="+listen)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := command.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	b.Cleanup(kill)
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	p := &process{setup: s, kill: kill}
	if _, err := fmt.Sscan(line, &p.agents, &p.orders); err != nil {
		b.Fatal(err)
	}
	return p
}

// order has the hub do something.
func (p *process) order(b *testing.B, what string, values url.Values) report {
	b.Helper()
	answer, err := http.Get("http://" + p.orders + "/" + what + "?" + values.Encode())
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	var done report
	if body, _ := io.ReadAll(answer.Body); json.Unmarshal(body, &done) != nil {
		b.Fatalf("%s of %s: %s", what, p.name, body)
	}
	return done
}

var insecure = &tls.Config{InsecureSkipVerify: true}

// connect keeps an agent connected until ctx ends: one of the library as it is used today, or our own.
func (p *process) connect(ctx context.Context, key string) {
	if p.ownAgent {
		go agent.New(agent.Options{
			Agent: "cluster/bench", Log: slog.New(slog.DiscardHandler), Dial: (&net.Dialer{}).DialContext,
			Access: func(context.Context) (agent.Access, error) {
				return agent.Access{Server: "https://" + p.agents, Token: key, TLS: insecure}, nil
			},
		}).Run(ctx)
		return
	}
	go func() {
		dialer := &websocket.Dialer{TLSClientConfig: insecure, HandshakeTimeout: remotedialer.HandshakeTimeOut}
		for ctx.Err() == nil {
			_ = remotedialer.ClientConnect(ctx, "wss://"+p.agents, http.Header{"Authorization": {"Bearer " + key}}, dialer,
				func(string, string) bool { return true }, nil)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	}()
}

func (p *process) awaitSessions(b *testing.B, count int) {
	b.Helper()
	wait.Until(b, 2*time.Minute, fmt.Sprintf("%s has %d sessions", p.name, count), func() bool {
		time.Sleep(20 * time.Millisecond)
		return p.order(b, "idle", nil).Sessions >= count
	})
}

// measure has every setup measured in turn and reports medians under its name.
func measure(b *testing.B, once func(b *testing.B, p *process) map[string]float64) {
	for range b.N {
		values := map[string][]float64{}
		for range rounds {
			for _, s := range setups {
				ctx, cancel := context.WithCancel(b.Context())
				p := start(b, s, "127.0.0.1:0")
				p.connect(ctx, "a")
				p.awaitSessions(b, 1)
				for unit, value := range once(b, p) {
					name := strings.ReplaceAll(s.name, " ", "-") + ":" + unit
					values[name] = append(values[name], value)
				}
				cancel()
				p.kill()
			}
		}
		reportMedians(b, values)
	}
}

func reportMedians(b *testing.B, values map[string][]float64) {
	for name, all := range values {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
	}
	b.ReportMetric(0, "ns/op")
}

// source sends for as long as it is read.
func source(conn net.Conn) {
	data := make([]byte, 64<<10)
	for err := error(nil); err == nil; {
		_, err = conn.Write(data)
	}
}

// discard confirms what it has read when it has read so much.
func discard(bytes int64) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := io.CopyN(io.Discard, conn, bytes); err == nil {
			_, _ = conn.Write([]byte("x"))
			_, _ = io.Copy(io.Discard, conn)
		}
	}
}

func BenchmarkDownload(b *testing.B) { benchmarkTransfer(b, "download", 1) }

func BenchmarkUpload(b *testing.B) { benchmarkTransfer(b, "upload", 1) }

func BenchmarkDownload64(b *testing.B) { benchmarkTransfer(b, "download", 64) }

func BenchmarkUpload64(b *testing.B) { benchmarkTransfer(b, "upload", 64) }

func benchmarkTransfer(b *testing.B, what string, streams int) {
	const mib = 256
	address := tunneltest.Listen(b, source)
	if what == "upload" {
		address = tunneltest.Listen(b, discard(mib<<20/int64(streams)))
	}
	measure(b, func(b *testing.B, p *process) map[string]float64 {
		done := p.order(b, what, url.Values{"address": {address}, "streams": {fmt.Sprint(streams)}, "mib": {fmt.Sprint(mib)}})
		return map[string]float64{"MiB/s": mib / done.Seconds, "hub-cpu-s/GiB": done.CPU * 1024 / mib}
	})
}

// BenchmarkRequestsDuringDownload sends requests of 1 KiB while a download has the tunnel busy.
func BenchmarkRequestsDuringDownload(b *testing.B) {
	bulk, small := tunneltest.Listen(b, source), tunneltest.Listen(b, tunneltest.Echo)
	measure(b, func(b *testing.B, p *process) map[string]float64 {
		done := p.order(b, "latency", url.Values{"bulk": {bulk}, "small": {small}})
		return map[string]float64{"p50-ms": done.P50, "p99-ms": done.P99, "req/s": float64(done.Requests) / 3}
	})
}

// BenchmarkAPIRequests has 64 callers of an API server with TLS that answers 4 KiB after a millisecond. The library is used as Rancher uses
// it, with two idle connections; the hub keeps 100.
func BenchmarkAPIRequests(b *testing.B) {
	body := make([]byte, 4<<10)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Millisecond)
		_, _ = w.Write(body)
	}))
	api.Config.ErrorLog = log.New(io.Discard, "", 0)
	api.StartTLS()
	defer api.Close()
	measure(b, func(b *testing.B, p *process) map[string]float64 {
		idle := "100"
		if p.hub == "library" {
			idle = "2"
		}
		done := p.order(b, "requests", url.Values{"address": {api.URL}, "idle": {idle}})
		return map[string]float64{"req/s": float64(done.Requests) / done.Seconds, "hub-cpu-us/req": done.CPU * 1e6 / float64(done.Requests)}
	})
}

// BenchmarkStalledStreams has 64 downloads that nobody reads.
func BenchmarkStalledStreams(b *testing.B) {
	address := tunneltest.Listen(b, source)
	measure(b, func(b *testing.B, p *process) map[string]float64 {
		done := p.order(b, "stalled", url.Values{"address": {address}, "streams": {"64"}})
		return map[string]float64{"MiB": float64(done.RSS) / (1 << 20)}
	})
}

// BenchmarkIdleSessions tells what a session costs that does nothing, and how long all agents take to be back after the hub was killed.
func BenchmarkIdleSessions(b *testing.B) {
	for _, count := range []int{1000, 5000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for range b.N {
				values := map[string][]float64{}
				for _, s := range setups {
					for unit, value := range idle(b, s, count) {
						values[s.name+":"+unit] = []float64{value}
					}
				}
				reportMedians(b, values)
			}
		})
	}
}

func idle(b *testing.B, s setup, count int) map[string]float64 {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	p := start(b, s, "127.0.0.1:0")
	before := p.order(b, "idle", url.Values{"memory": {""}})
	for i := range count {
		p.connect(ctx, fmt.Sprintf("a%d", i))
		if i%50 == 49 {
			p.awaitSessions(b, i-100)
		}
	}
	p.awaitSessions(b, count)
	// Memory is looked at after some rounds of pings, when the first garbage is gone.
	time.Sleep(6 * time.Second)
	p.order(b, "idle", url.Values{"memory": {""}})
	then := p.order(b, "idle", url.Values{"memory": {""}})
	time.Sleep(10 * time.Second)
	later := p.order(b, "idle", nil)
	p.kill()
	time.Sleep(2 * time.Second)
	again := start(b, s, p.agents)
	up := time.Now()
	again.awaitSessions(b, count)
	back := time.Since(up)
	again.kill()
	return map[string]float64{
		"KiB/session": float64(then.RSS-before.RSS) / 1024 / float64(count),
		"mcores":      (later.CPU - then.CPU) / 10 * 1000,
		"back-s":      back.Seconds(),
	}
}
