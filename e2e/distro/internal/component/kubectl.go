package component

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
)

// Kubectl becomes kubectl; without a KUBECONFIG it takes the administrator's of this node, as k3s does.
func Kubectl(args []string) int {
	if os.Getenv("KUBECONFIG") == "" {
		if _, err := os.Stat(config.KubeconfigFile); err == nil {
			_ = os.Setenv("KUBECONFIG", config.KubeconfigFile)
		}
	}
	os.Args = append([]string{"kubectl"}, args...)
	command := cmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err)
	}
	return 0
}
