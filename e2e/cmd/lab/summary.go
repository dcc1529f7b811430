package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// times are what a demo has measured; those it has not are 0.
type times struct {
	hubReady, planDelivered, nodeReady, total time.Duration
}

// rows are the measurements as a table.
func (t times) rows(hubMemory, agentMemory int64) [][2]string {
	var rows [][2]string
	for _, m := range []struct {
		name string
		d    time.Duration
	}{{"hub ready", t.hubReady}, {"registration to plan delivered", t.planDelivered}, {"plan delivered to Node Ready", t.nodeReady},
		{"whole demo", t.total}} {
		if m.d > 0 {
			rows = append(rows, [2]string{m.name, seconds(m.d)})
		}
	}
	for _, m := range []struct {
		name  string
		bytes int64
	}{{"memory of the hub", hubMemory}, {"memory of the agent", agentMemory}} {
		if m.bytes > 0 {
			rows = append(rows, [2]string{m.name, fmt.Sprintf("%.0f MiB", float64(m.bytes)/(1<<20))})
		}
	}
	return rows
}

// summary shows what there is now, as kubectl sees it, and what to type next.
func (d *demo) summary(ctx context.Context) error {
	hub, err := d.HubClient()
	if err != nil {
		return err
	}
	kubeconfig, err := d.WriteClusterKubeconfig(ctx, hub, demoCluster)
	if err != nil {
		return err
	}
	for _, table := range []struct{ kubeconfig, args string }{
		{d.HubKubeconfig(), "get clusters.provisioning.cattle.io -n " + demoCluster.Namespace},
		{d.HubKubeconfig(), "get machines.cluster.x-k8s.io -n " + demoCluster.Namespace},
		{kubeconfig, "get nodes -o wide"},
	} {
		fmt.Println()
		cmd, err := d.Kubectl(ctx, table.kubeconfig, strings.Fields(table.args)...)
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("showing a table: kubectl %s: %w", table.args, err)
		}
	}
	host, err := d.Host(demoHost)
	if err != nil {
		return err
	}
	hubMemory, err := d.HubMemory()
	if err != nil {
		return err
	}
	agentMemory, err := d.AgentMemory(ctx, host)
	if err != nil {
		return err
	}
	fmt.Println()
	for _, row := range d.times.rows(hubMemory, agentMemory) {
		fmt.Printf("%-32s %s\n", row[0], row[1])
	}
	fmt.Print("\n", nextLines(d.Name, demoCluster))
	return nil
}

// nextLines are commands to go on with.
func nextLines(name string, cluster client.ObjectKey) string {
	bin := "bin/lab"
	down := "make demo-down"
	if name != "demo" {
		bin += " --name " + name
		down = bin + " down"
	}
	lines := [][2]string{
		{bin + " kubectl get clusters.provisioning.cattle.io -n " + cluster.Namespace, "the hub"},
		{bin + " kubectl --cluster " + cluster.Name + " get pods -A", "the cluster that it made"},
		{bin + " shell " + demoHost, "a shell on the host"},
		{bin + " logs hub", "what the hub says; or logs " + demoHost},
		{down, "remove everything"},
	}
	var b strings.Builder
	b.WriteString("Go on with:\n")
	for _, line := range lines {
		fmt.Fprintf(&b, "  %-68s # %s\n", line[0], line[1])
	}
	return b.String()
}
