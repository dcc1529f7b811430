package tunnel

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rancher/remotedialer"

	"github.com/drover-dev/drover/hub/access/tunnel"
	"github.com/drover-dev/drover/tunnel/session"
)

// Benchmarks have the hub in a process of its own, which is this test's program again, so that its time and memory are its own. It listens
// with TLS, as a hub does, and takes orders on a second port.

const (
	// hubKindEnv makes the program a hub: "library" or "hub". hubListenEnv is where agents connect.
	hubKindEnv   = "TUNNEL_BENCH_HUB"
	hubListenEnv = "TUNNEL_BENCH_LISTEN"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(hubKindEnv); kind != "" {
		if err := runBenchHub(kind, os.Getenv(hubListenEnv)); err != nil {
			fmt.Fprintln(os.Stderr, "hub for benchmarks:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// benchHub is the program as a hub.
type benchHub struct {
	dial  func(ctx context.Context, key, network, address string) (net.Conn, error)
	count func() int
}

// report is what an order has cost. Not every order fills every field.
type report struct {
	Seconds, CPU float64
	P50, P99     float64
	Requests     int
	Sessions     int
	RSS          int64
}

func newBenchHub(kind string) (*benchHub, http.Handler) {
	if kind == "library" {
		s := remotedialer.New(func(r *http.Request) (string, bool, error) { return keyOf(r), true, nil }, remotedialer.DefaultErrorWriter)
		return &benchHub{count: func() int { return len(s.ListClients()) },
			dial: func(ctx context.Context, key, network, address string) (net.Conn, error) {
				return s.Dialer(key)(ctx, network, address)
			}}, s
	}
	m := tunnel.New(quiet)
	return &benchHub{dial: m.Dial, count: func() int { return len(m.Keys()) }},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.Serve(w, r, tunnel.Agent{Key: keyOf(r)}) })
}

func keyOf(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func runBenchHub(kind, listen string) error {
	hub, handler := newBenchHub(kind)
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if kind != "library" {
		listener = session.Listener(listener)
	}
	agents := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13})
	orders, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("%s %s\n", agents.Addr(), orders.Addr())
	go func() {
		// The hub ends with the process that started it.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	mux := http.NewServeMux()
	for name, order := range map[string]func(url.Values) (report, error){
		"download": hub.download, "upload": hub.upload, "latency": hub.latency, "stalled": hub.stalled, "idle": hub.idle,
		"requests": hub.requests,
	} {
		mux.HandleFunc("/"+name, func(w http.ResponseWriter, r *http.Request) {
			done, err := order(r.URL.Query())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(done)
		})
	}
	go func() { _ = http.Serve(orders, mux) }()
	// What the library's server has to say of handshakes that were given up would be among the results.
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	return server.Serve(agents)
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// transfer runs streams side by side and tells what they cost together.
func (h *benchHub) transfer(q url.Values, move func(conn net.Conn, bytes int64) error) (report, error) {
	streams, mib := number(q, "streams"), number(q, "mib")
	start, cpu := time.Now(), cpuTime()
	errs := make(chan error, streams)
	for range streams {
		go func() {
			conn, err := h.dial(context.Background(), "a", "tcp", q.Get("address"))
			if err == nil {
				defer conn.Close()
				err = move(conn, int64(mib)<<20/int64(streams))
			}
			errs <- err
		}()
	}
	var failed error
	for range streams {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return report{Seconds: time.Since(start).Seconds(), CPU: cpuTime() - cpu}, failed
}

func (h *benchHub) download(q url.Values) (report, error) {
	return h.transfer(q, func(conn net.Conn, bytes int64) error {
		_, err := io.CopyBuffer(io.Discard, onlyReader{io.LimitReader(conn, bytes)}, make([]byte, 64<<10))
		return err
	})
}

// upload is over when the target has confirmed the last byte.
func (h *benchHub) upload(q url.Values) (report, error) {
	return h.transfer(q, func(conn net.Conn, bytes int64) error {
		data := make([]byte, 32<<10)
		for sent := int64(0); sent < bytes; sent += int64(len(data)) {
			if _, err := conn.Write(data); err != nil {
				return err
			}
		}
		_, err := io.ReadFull(conn, data[:1])
		return err
	})
}

type onlyReader struct{ io.Reader }

// latency sends small requests one after the other while something large is downloaded.
func (h *benchHub) latency(q url.Values) (report, error) {
	ctx := context.Background()
	bulk, err := h.dial(ctx, "a", "tcp", q.Get("bulk"))
	if err != nil {
		return report{}, err
	}
	defer bulk.Close()
	go func() { _, _ = io.Copy(io.Discard, onlyReader{bulk}) }()
	small, err := h.dial(ctx, "a", "tcp", q.Get("small"))
	if err != nil {
		return report{}, err
	}
	defer small.Close()
	time.Sleep(200 * time.Millisecond)
	var took []float64
	message := make([]byte, 1<<10)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		start := time.Now()
		if _, err := small.Write(message); err != nil {
			return report{}, err
		}
		if _, err := io.ReadFull(small, message); err != nil {
			return report{}, err
		}
		took = append(took, time.Since(start).Seconds()*1000)
	}
	slices.Sort(took)
	return report{P50: took[len(took)/2], P99: took[len(took)*99/100], Requests: len(took)}, nil
}

// requestTime is how long requests are measured.
const requestTime = 4 * time.Second

// requests has 64 callers send requests to an API server for requestTime. Some connections through the tunnel are kept for the next one.
func (h *benchHub) requests(q url.Values) (report, error) {
	transport := &http.Transport{TLSClientConfig: insecure, MaxIdleConnsPerHost: number(q, "idle"),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return h.dial(ctx, "a", network, address)
		}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	call := func() error {
		answer, err := client.Get(q.Get("address"))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if n, err := io.Copy(io.Discard, answer.Body); n != 4<<10 {
			return fmt.Errorf("%d bytes, %w", n, err)
		}
		return nil
	}
	var done, failed atomic.Int64
	start, cpu := time.Now(), cpuTime()
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for time.Since(start) < requestTime {
				if call() != nil {
					failed.Add(1)
				}
				done.Add(1)
			}
		})
	}
	callers.Wait()
	if n := failed.Load(); n > 0 {
		return report{}, fmt.Errorf("%d of %d requests failed", n, done.Load())
	}
	return report{Seconds: time.Since(start).Seconds(), CPU: cpuTime() - cpu, Requests: int(done.Load())}, nil
}

// stalled opens downloads that nobody reads.
func (h *benchHub) stalled(q url.Values) (report, error) {
	before := residentSet()
	for range number(q, "streams") {
		conn, err := h.dial(context.Background(), "a", "tcp", q.Get("address"))
		if err != nil {
			return report{}, err
		}
		defer conn.Close()
	}
	time.Sleep(3 * time.Second)
	return report{RSS: residentSet() - before}, nil
}

// idle tells how much memory there is in use, after what is not has been given back.
func (h *benchHub) idle(q url.Values) (report, error) {
	if q.Has("memory") {
		debug.FreeOSMemory()
	}
	return report{Sessions: h.count(), RSS: residentSet(), CPU: cpuTime()}, nil
}

func number(q url.Values, name string) int {
	n, _ := strconv.Atoi(q.Get(name))
	return n
}

func cpuTime() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func residentSet() int64 {
	statm, _ := os.ReadFile("/proc/self/statm")
	var size, resident int64
	_, _ = fmt.Sscan(string(statm), &size, &resident)
	return resident * int64(os.Getpagesize())
}
