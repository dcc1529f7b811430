package main

import (
	"context"
	"fmt"
	"os"

	"github.com/drover-dev/drover/e2e/lab"
)

func main() {
	ctx := context.Background()
	l, err := lab.Open(lab.Options{Name: "prov", Subnet: 200})
	must(err)
	l.OnProgress(func(s string) { fmt.Println(s) })
	must(l.Up(ctx))
	must(l.StartRegistry(ctx))
	cmd := l.Command(ctx, l.Repo+"/bin/installer", "build", "--runtime", "k3s", "--version", lab.Version, "--arch", "amd64", "--from", os.Getenv("REL"),
		"--push", l.HubIP().String()+":5000/rancher/system-agent-installer-k3s", "--insecure")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	must(cmd.Run())
	must(l.StartHub(ctx))
	hub, err := l.HubClient()
	must(err)
	must(l.StartProvider(ctx, hub))
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
