//go:build published

package nodedriver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/mkisofs"
	"github.com/drover-dev/drover/hub/testenv/loopback"
)

// TestMain is the program of the hub for drivers, too.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == mkisofs.Name {
		os.Exit(mkisofs.Main(os.Args[1:], os.Stderr))
	}
	os.Exit(m.Run())
}

// TestPublishedVSphere makes a machine with the driver vmwarevsphere of rancher-machine, at VMware's simulator of a vCenter, and removes
// it. The driver puts the user data onto a CD, which a program reads that is not of this repository.
func TestPublishedVSphere(t *testing.T) {
	program, runner := published(t)
	address := startVCenter(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	m := &nodedriver.Machine{
		Driver: "vmwarevsphere", Program: program, Name: "pool-1", Hostname: "pool-1-host",
		Spec: map[string]any{"creationType": "vm", "cloneFrom": "DC0_H0_VM0", "datacenter": "DC0", "datastore": "LocalDS_0",
			"hostsystem": "DC0_H0", "network": []any{"VM Network"}, "cfgparam": []any{"SET.guest.ipAddress=198.51.100.7"},
			"cloudConfig": "#cloud-config\npackages: [jq]\n", "diskSize": "20480", "os": "linux"},
		Credential: nodedriver.Credential("vmwarevsphere", map[string][]byte{"vmwarevspherecredentialConfig-vcenter": []byte(host),
			"vmwarevspherecredentialConfig-vcenterPort": []byte(port), "vmwarevspherecredentialConfig-username": []byte("user"),
			"vmwarevspherecredentialConfig-password": []byte("planted-password")}),
		Script: []byte("#!/bin/sh\nexport CATTLE_TOKEN='planted-join-token'\n"),
	}
	keepState(m)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	runner.Grace = time.Second
	addresses, log, err := runner.Create(ctx, m)
	if err != nil {
		t.Fatal(err, log)
	}
	if !slices.Contains(addresses, nodedriver.Address{Address: "198.51.100.7"}) &&
		!slices.Contains(addresses, nodedriver.Address{Internal: true, Address: "198.51.100.7"}) {
		t.Errorf("the machine has the addresses %v", addresses)
	}
	code, cd := download(t, address)
	if code != http.StatusOK {
		t.Fatalf("the CD is not there: %d", code)
	}
	var config struct {
		Packages []string
		Hostname string
		Runcmd   []string
		Users    []struct{ Name string }
	}
	if err := yaml.Unmarshal(readCD(t, cd, "user-data"), &config); err != nil || len(config.Packages) != 1 ||
		config.Hostname != "pool-1-host" || len(config.Runcmd) != 1 || len(config.Users) == 0 {
		t.Errorf("the user data is %+v, %v", config, err)
	}
	if meta := readCD(t, cd, "meta-data"); !bytes.Contains(meta, []byte("local-hostname: pool-1")) {
		t.Errorf("the meta data is %q", meta)
	}
	if log, err := runner.Remove(t.Context(), m); err != nil {
		t.Error(err, log)
	}
	if code, _ := download(t, address); code != http.StatusNotFound {
		t.Errorf("the CD is still there: %d", code)
	}
	if log, err := runner.Remove(t.Context(), m); err != nil {
		t.Errorf("a machine that is gone: %v %s", err, log)
	}
}

// startVCenter starts the simulator and returns its address.
func startVCenter(t *testing.T) string {
	t.Helper()
	address, err := loopback.FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../../bin/vcsim", address)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: make published-drivers builds it and runs this test", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if connection, err := net.Dial("tcp", address); err == nil {
			_ = connection.Close()
			return address
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// download gets the CD of the machine from its datastore.
func download(t *testing.T, address string) (int, []byte) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the simulator's own
	response, err := c.Get(fmt.Sprintf("https://user:pass@%s/folder/pool-1/user-data.iso?dcPath=DC0&dsName=LocalDS_0", address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

// readCD reads a file of an image of a CD with bsdtar.
func readCD(t *testing.T, cd []byte, name string) []byte {
	t.Helper()
	image := filepath.Join(t.TempDir(), "cd.iso")
	if err := os.WriteFile(image, cd, 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := exec.Command("bsdtar", "-xOf", image, name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return content
}
