// What tests of the package's users need of its inside.

package runner

// EncodeLine is encodeLine.
var EncodeLine = encodeLine
