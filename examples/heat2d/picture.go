package main

import (
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
)

// colours lists the colours from cold to hot, evenly spaced.
var colours = [...]color.RGBA{
	{6, 8, 24, 255},
	{30, 20, 84, 255},
	{92, 24, 122, 255},
	{168, 38, 104, 255},
	{226, 76, 58, 255},
	{250, 148, 36, 255},
	{254, 214, 92, 255},
	{255, 252, 224, 255},
}

// writePicture draws the plate as a PNG file, with one pixel for each cell.
func writePicture(name string, plate []float64, rows, cols int) error {
	img := image.NewRGBA(image.Rect(0, 0, cols, rows))
	for i, t := range plate {
		img.SetRGBA(i%cols, i/cols, colour(t))
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := png.Encode(f, img); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// colour returns the colour of a temperature between 0 and 1.
func colour(t float64) color.RGBA {
	at := min(max(t, 0), 1) * float64(len(colours)-1)
	i := min(int(at), len(colours)-2)
	a, b, share := colours[i], colours[i+1], at-float64(i)
	mix := func(a, b uint8) uint8 {
		return uint8(math.Round(float64(a) + share*(float64(b)-float64(a))))
	}
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}
