package remote_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/source/remote"
	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/plans"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkPlanLatency measures from the moment at which a plan is in the Secret until its success is, with the journal on a real disk,
// programs that really run, and a hub across HTTPS on loopback that keeps nothing on a disk of its own.
func BenchmarkPlanLatency(b *testing.B) {
	for name, deliver := range map[string]func(plans.SecretData, []byte){
		"state": func(data plans.SecretData, raw []byte) { plans.Deliver(data, raw, 1, 0) },
		"checksum": func(data plans.SecretData, raw []byte) {
			plans.Deliver(data, raw, 1, 0)
			delete(data, plans.KeyPlanState)
		},
	} {
		b.Run(name, func(b *testing.B) { benchmarkLatency(b, deliver) })
	}
}

func benchmarkLatency(b *testing.B, deliver func(plans.SecretData, []byte)) {
	hub := testhub.New(b)
	dir := b.TempDir()
	log := slog.New(slog.DiscardHandler)
	source, err := remote.New(remote.Options{ConnectionFile: hub.Connection(b, dir, "token"), Log: log})
	if err != nil {
		b.Fatal(err)
	}
	agent := engine.New(engine.Options{
		Source: source, Host: host.Local{}, Log: log, Environment: []string{"PATH=/usr/bin:/bin"},
		WorkDirectory: filepath.Join(dir, "work"), StateDirectory: filepath.Join(dir, "state"), InstructionTimeout: time.Hour,
	})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() { source.Run(ctx) }()
	go func() {
		defer close(ended)
		_ = agent.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		plan := plans.Plan{Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{
			Name: "echo", Command: "echo", Args: []string{time.Now().String()}}, SaveOutput: true}}}
		raw, err := plan.Encode()
		if err != nil {
			b.Fatal(err)
		}
		checksum := plans.Checksum(raw)
		time.Sleep(50 * time.Millisecond) // the client holds back who asks without end
		began := time.Now()
		hub.Change(func(s *corev1.Secret) { deliver(s.Data, raw) })
		for string(hub.Now().Data[plans.KeyAppliedChecksum]) != checksum {
			time.Sleep(50 * time.Microsecond)
		}
		if i > 2 { // until the first plan the agent has still to connect
			took = append(took, time.Since(began))
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
		b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
	}
}
