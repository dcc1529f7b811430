// Program stands for agent and hub in tests of the layout: a static program that prints completions.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	fmt.Println("#", strings.Join(os.Args[1:], " "))
}
