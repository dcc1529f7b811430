package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Collect saves everything that explains a failure into dir: the logs of hub, registry and consoles, each host's whole
// journal and those of agent and distribution, and the hub's objects as kubectl shows them (without Secrets).
func (l *Lab) Collect(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	save := func(name string, fill func(io.Writer) error) {
		if err := writeLog(dir, name, fill); err != nil {
			errs = append(errs, fmt.Errorf("saving %s: %w", name, err))
		}
	}
	logs, err := filepath.Glob(filepath.Join(l.LogDir(), "*.log"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		save(filepath.Base(log), func(w io.Writer) error {
			f, err := os.Open(log)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(w, f)
			return err
		})
	}
	for _, h := range l.Hosts() {
		// sudo writes the registration command into the journal as it was typed, with the token.
		save(h.Name+"-journal.log", func(w io.Writer) error {
			clean := &redactor{to: w}
			return errors.Join(h.Logs(ctx, clean), clean.Close())
		})
		save(h.Name+"-agent.log", func(w io.Writer) error { return h.Logs(ctx, w, "rancher-system-agent") })
		for _, d := range Distributions {
			for _, unit := range []string{d.ServerUnit, d.AgentUnit} {
				if _, err := os.Stat(h.Path(d.ConfigDir())); err == nil {
					save(h.Name+"-"+unit+".log", func(w io.Writer) error { return h.Logs(ctx, w, unit) })
				}
			}
		}
		pods, _ := filepath.Glob(h.Path("/var/log/pods/kube-system_*/*/*.log"))
		for _, log := range pods {
			save(h.Name+"-"+filepath.Base(filepath.Dir(filepath.Dir(log)))+"-"+filepath.Base(log), func(w io.Writer) error {
				f, err := os.Open(log)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = io.Copy(w, f)
				return err
			})
		}
	}
	if l.Running(hubProcess) {
		all := []string{"clusters.provisioning.cattle.io", "rkeclusters,rkecontrolplanes,rkebootstraps,custommachines",
			"clusters.cluster.x-k8s.io,machines.cluster.x-k8s.io", "machinedeployments,machinesets,machinehealthchecks",
			"clusters.management.cattle.io,clusterregistrationtokens", "events"}
		if l.Running(providerProcess) {
			all = append(all, "labclusters,labmachines")
		}
		for _, kinds := range all {
			save("hub-"+kinds+".yaml", func(w io.Writer) error {
				cmd, err := l.Kubectl(ctx, l.HubKubeconfig(), "get", kinds, "-A", "-o", "yaml")
				if err != nil {
					return err
				}
				cmd.Stdout, cmd.Stderr = w, w
				return cmd.Run()
			})
		}
	}
	return errors.Join(errs...)
}

// tokenRE matches a registration token where the command shows it.
var tokenRE = regexp.MustCompile(`(--token[ =])[^ ;"']+`)

// redactor writes whole lines on without registration tokens.
type redactor struct {
	to   io.Writer
	rest []byte
}

func (r *redactor) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	end := bytes.LastIndexByte(r.rest, '\n') + 1
	if _, err := r.to.Write(tokenRE.ReplaceAll(r.rest[:end], []byte("${1}***"))); err != nil {
		return 0, err
	}
	r.rest = append(r.rest[:0], r.rest[end:]...)
	return len(p), nil
}

// Close writes what came after the last line.
func (r *redactor) Close() error {
	_, err := r.to.Write(tokenRE.ReplaceAll(r.rest, []byte("${1}***")))
	return err
}

func writeLog(dir, name string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}
