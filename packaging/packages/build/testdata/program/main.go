// Program stands for agent and hub in tests of the layout: a static program that prints completions, and contains a module.
package main

import (
	"fmt"
	"os"
	"strings"

	_ "github.com/google/go-cmp/cmp"
)

func main() {
	fmt.Println("#", strings.Join(os.Args[1:], " "))
}
