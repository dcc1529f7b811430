// Command kubectl is upstream's kubectl, from its own module: go.mod pins the minor of the hub's Kubernetes, and go-1.35.mod
// (go build -modfile) the one before. The scenarios are clients of the API proxy with both.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // exec credential plugins
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
		os.Exit(1)
	}
}
