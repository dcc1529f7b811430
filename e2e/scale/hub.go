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
)

// hub is the hub that is measured.
type hub struct {
	*programs.Program
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
	var addresses [6]string
	for i := range addresses {
		var err error
		if addresses[i], err = programs.FreeAddress("127.0.0.1"); err != nil {
			return nil, err
		}
	}
	api, gateway, webhook, health, pprof := addresses[0], addresses[1], addresses[2], addresses[3], addresses[4]
	_, port, err := net.SplitHostPort(api)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "hub")
	h := &hub{url: "https://" + gateway, kubeconfig: filepath.Join(data, "admin.kubeconfig"), pprof: "http://" + pprof,
		audit: filepath.Join(dir, "audit.log")}
	began := time.Now()
	h.Program, err = programs.Start(dir, "hub", nil, program, "serve", "--data-dir", data, "--api-port", port, "--listen", gateway,
		"--server-url", h.url, "--assets-dir", dir, "--webhook-listen", webhook, "--health-listen", health,
		"--metrics-listen", addresses[5], "--pprof-listen", pprof, "--api-audit-log-path", h.audit, "--audit-log-maxsize", "2000")
	if err != nil {
		return nil, err
	}
	err = h.Await(ctx, "the hub to be ready", func() error {
		if _, err := get(ctx, http.DefaultClient, "http://"+health+"/readyz"); err != nil {
			return err
		}
		return h.readAuthorities(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	h.started = time.Since(began)
	return h, h.connect()
}

func (h *hub) connect() (err error) {
	if h.config, err = clientcmd.BuildConfigFromFlags("", h.kubeconfig); err != nil {
		return fmt.Errorf("reading the hub's kubeconfig: %w", err)
	}
	h.config.QPS, h.config.WarningHandler = -1, rest.NoWarnings{}
	h.api, err = rest.HTTPClientFor(h.config)
	return err
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

// profile writes a profile of the hub into a directory, unless that is empty.
func (h *hub) profile(ctx context.Context, dir, name, kind string) error {
	if dir == "" {
		return nil
	}
	raw, err := get(ctx, http.DefaultClient, h.pprof+"/debug/pprof/"+kind)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".pprof"), raw, 0o600)
}

// record records profiles of the processor, of 15 s each, until it is stopped. The one that is not complete then is left out.
func (h *hub) record(ctx context.Context, dir, name string) (stop func()) {
	if dir == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 1; ctx.Err() == nil; i++ {
			if err := h.profile(ctx, dir, name+"-"+strconv.Itoa(i), "profile?seconds=15"); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "Recording a profile failed:", err)
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
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
