// Package rke2 defines the image system-agent-installer-rke2: its run.sh and the files of an RKE2 release it holds.
package rke2

import (
	_ "embed"

	"github.com/drover-dev/drover/installer/layout"
)

//go:embed run.sh
var runScript []byte

// Definition returns what the image consists of. The names are those of the files of an RKE2 release.
func Definition() layout.Definition {
	return layout.Definition{Runtime: "rke2", Title: "RKE2", RunScript: runScript, Artifacts: artifacts}
}

func artifacts(arch string) []layout.Artifact {
	program := "rke2.linux-" + arch + ".tar.gz"
	return []layout.Artifact{
		{Names: []string{program}, Path: program, Mode: 0o644},
		{Images: true, Names: layout.ImageArchives("rke2-images.linux-" + arch), Mode: 0o644},
	}
}
