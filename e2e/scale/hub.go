package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/e2e/scale/figures"
	"github.com/drover-dev/drover/e2e/scale/programs"
	"github.com/drover-dev/drover/hub/testenv/loopback"
)

// profiled is the time that a profile of the processor covers.
const profiled = 10 * time.Second

// timerSlack is that of the hub's unit (TimerSlackNSec).
const timerSlack = 50 * time.Millisecond

// hub is the hub that is measured.
type hub struct {
	*programs.Program
	// program is its file, args are what it is started with, each time under its name and with its log in dir.
	program, dir, name string
	args               []string
	// gateway, webhook and health are where it listens.
	gateway, webhook, health string
	// started is how long it took to be ready.
	started time.Duration
	// url is that of the gateway, kubeconfig the file of the administrator, pprof the URL of its profiles.
	url, kubeconfig, pprof string
	// audit is the audit log of the API server.
	audit   string
	caCerts []byte
	config  *rest.Config
	// api is a client of the API server for what no typed client reads.
	api *http.Client
}

// startHub starts a hub with an embedded API server and waits until it is ready.
func startHub(ctx context.Context, program, dir string) (*hub, error) {
	h, err := newHub(program, dir, "hub")
	if err != nil {
		return nil, err
	}
	api, err := loopback.FreeAddress("127.0.0.1")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(api)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "hub")
	h.kubeconfig, h.audit = filepath.Join(data, "admin.kubeconfig"), filepath.Join(dir, "audit.log")
	h.args = append(h.args, "--data-dir", data, "--server-url", h.url, "--assets-dir", dir, "--api-port", port,
		"--api-audit-log-path", h.audit, "--audit-log-maxsize", "2000")
	if err := h.start(ctx); err != nil {
		return nil, err
	}
	return h, h.connect()
}

// newHub is a hub that listens on free ports, with the arguments that any hub has.
func newHub(program, dir, name string) (*hub, error) {
	var addresses [5]string
	for i := range addresses {
		var err error
		if addresses[i], err = loopback.FreeAddress("127.0.0.1"); err != nil {
			return nil, err
		}
	}
	gateway, webhook, health, pprof := addresses[0], addresses[1], addresses[2], addresses[3]
	return &hub{
		program: program, dir: dir, name: name,
		gateway: gateway, webhook: webhook, health: health, url: "https://" + gateway, pprof: "http://" + pprof,
		args: []string{"serve", "--listen", gateway, "--webhook-listen", webhook, "--health-listen", health,
			"--metrics-listen", addresses[4], "--pprof-listen", pprof},
	}, nil
}

// start starts the hub, for the first time or again, and waits until it is ready.
func (h *hub) start(ctx context.Context) (err error) {
	began := time.Now()
	err = programs.WithTimerSlack(timerSlack, func() (err error) {
		h.Program, err = programs.Start(h.dir, h.name, nil, h.program, h.args...)
		return err
	})
	if err != nil {
		return err
	}
	err = h.Await(ctx, "the hub to be ready", func() error {
		if _, err := get(ctx, http.DefaultClient, "http://"+h.health+"/readyz"); err != nil {
			return err
		}
		return h.readAuthorities(ctx)
	})
	if err != nil {
		return errors.Join(err, h.Stop())
	}
	h.started = time.Since(began)
	return nil
}

func (h *hub) connect() (err error) {
	h.config, h.api, err = administrator(h.kubeconfig)
	return err
}

// administrator reads a kubeconfig, and makes a client of it that does not limit its requests.
func administrator(kubeconfig string) (*rest.Config, *http.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	api, err := rest.HTTPClientFor(config)
	return config, api, err
}

// readAuthorities reads the gateway's certificate authorities, which the install script verifies by their checksum.
func (h *hub) readAuthorities(ctx context.Context) (err error) {
	transport := insecure()
	defer transport.CloseIdleConnections()
	h.caCerts, err = get(ctx, &http.Client{Transport: transport}, h.url+"/cacerts")
	return err
}

// sample measures the hub.
func (h *hub) sample(ctx context.Context) (figures.Sample, error) {
	used, err := h.Used()
	if err != nil {
		return figures.Sample{}, err
	}
	s := figures.Sample{Time: time.Now(), CPU: used.CPU, Resident: used.Resident}
	if s.Revision, err = h.revision(ctx); err != nil {
		return s, err
	}
	metrics, err := h.open(ctx, h.config.Host+"/metrics")
	if err != nil {
		return s, err
	}
	defer metrics.Close()
	return s, s.ReadMetrics(metrics)
}

func (h *hub) open(ctx context.Context, url string) (io.ReadCloser, error) {
	return open(ctx, h.api, url)
}

// writers counts who has written in a period.
func (h *hub) writers(from, to time.Time) (map[string]float64, error) {
	log, err := os.Open(h.audit)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return figures.ReadAudit(log, from, to)
}

// profile writes a profile of the hub into a directory, unless that is empty, and returns it.
func (h *hub) profile(ctx context.Context, dir, name, kind string) ([]byte, error) {
	raw, err := get(ctx, http.DefaultClient, h.pprof+"/debug/pprof/"+kind)
	if err != nil || dir == "" {
		return raw, err
	}
	return raw, os.WriteFile(filepath.Join(dir, name+".pprof"), raw, 0o600)
}

// record records profiles of the processor, of profiled each, until it is stopped, which returns the times of their samples by who has used
// the processor. The profile that is not complete then is left out.
func (h *hub) record(ctx context.Context, dir, name string) (stop func() (map[string]time.Duration, error)) {
	ctx, cancel := context.WithCancel(ctx)
	samples, ended := map[string]time.Duration{}, make(chan error, 1)
	go func() {
		for i := 1; ; i++ {
			raw, err := h.profile(ctx, dir, fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("profile?seconds=%.0f", profiled.Seconds()))
			if ctx.Err() != nil {
				ended <- nil
				return
			}
			if err == nil {
				err = figures.ReadProfile(raw, samples)
			}
			if err != nil {
				ended <- fmt.Errorf("recording a profile: %w", err)
				return
			}
		}
	}()
	return func() (map[string]time.Duration, error) {
		cancel()
		return samples, <-ended
	}
}

// revision returns the revision of etcd.
func (h *hub) revision(ctx context.Context) (int64, error) {
	raw, err := get(ctx, h.api, h.config.Host+"/api/v1/namespaces/kube-system/configmaps?limit=1")
	if err != nil {
		return 0, err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return 0, fmt.Errorf("decoding a list: %w", err)
	}
	return strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64)
}
