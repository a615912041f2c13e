// Lists of accumulator registers for inline assembly: wgmma wants each named.
#pragma once

// clang-format off
// DG_D_n names n accumulators in the template; DG_O_n(c) binds them with the constraint c: "+f" or "+r".
#define DG_O(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define DG_D_4 "%0, %1, %2, %3"
#define DG_O_4(c) DG_O(c, 0)
#define DG_D_8 DG_D_4 ", " "%4, %5, %6, %7"
#define DG_O_8(c) DG_O_4(c), DG_O(c, 4)
#define DG_D_12 DG_D_8 ", " "%8, %9, %10, %11"
#define DG_O_12(c) DG_O_8(c), DG_O(c, 8)
#define DG_D_16 DG_D_12 ", " "%12, %13, %14, %15"
#define DG_O_16(c) DG_O_12(c), DG_O(c, 12)
#define DG_D_20 DG_D_16 ", " "%16, %17, %18, %19"
#define DG_O_20(c) DG_O_16(c), DG_O(c, 16)
#define DG_D_24 DG_D_20 ", " "%20, %21, %22, %23"
#define DG_O_24(c) DG_O_20(c), DG_O(c, 20)
#define DG_D_28 DG_D_24 ", " "%24, %25, %26, %27"
#define DG_O_28(c) DG_O_24(c), DG_O(c, 24)
#define DG_D_32 DG_D_28 ", " "%28, %29, %30, %31"
#define DG_O_32(c) DG_O_28(c), DG_O(c, 28)
#define DG_D_36 DG_D_32 ", " "%32, %33, %34, %35"
#define DG_O_36(c) DG_O_32(c), DG_O(c, 32)
#define DG_D_40 DG_D_36 ", " "%36, %37, %38, %39"
#define DG_O_40(c) DG_O_36(c), DG_O(c, 36)
#define DG_D_44 DG_D_40 ", " "%40, %41, %42, %43"
#define DG_O_44(c) DG_O_40(c), DG_O(c, 40)
#define DG_D_48 DG_D_44 ", " "%44, %45, %46, %47"
#define DG_O_48(c) DG_O_44(c), DG_O(c, 44)
#define DG_D_52 DG_D_48 ", " "%48, %49, %50, %51"
#define DG_O_52(c) DG_O_48(c), DG_O(c, 48)
#define DG_D_56 DG_D_52 ", " "%52, %53, %54, %55"
#define DG_O_56(c) DG_O_52(c), DG_O(c, 52)
#define DG_D_60 DG_D_56 ", " "%56, %57, %58, %59"
#define DG_O_60(c) DG_O_56(c), DG_O(c, 56)
#define DG_D_64 DG_D_60 ", " "%60, %61, %62, %63"
#define DG_O_64(c) DG_O_60(c), DG_O(c, 60)
#define DG_D_68 DG_D_64 ", " "%64, %65, %66, %67"
#define DG_O_68(c) DG_O_64(c), DG_O(c, 64)
#define DG_D_72 DG_D_68 ", " "%68, %69, %70, %71"
#define DG_O_72(c) DG_O_68(c), DG_O(c, 68)
#define DG_D_76 DG_D_72 ", " "%72, %73, %74, %75"
#define DG_O_76(c) DG_O_72(c), DG_O(c, 72)
#define DG_D_80 DG_D_76 ", " "%76, %77, %78, %79"
#define DG_O_80(c) DG_O_76(c), DG_O(c, 76)
#define DG_D_84 DG_D_80 ", " "%80, %81, %82, %83"
#define DG_O_84(c) DG_O_80(c), DG_O(c, 80)
#define DG_D_88 DG_D_84 ", " "%84, %85, %86, %87"
#define DG_O_88(c) DG_O_84(c), DG_O(c, 84)
#define DG_D_92 DG_D_88 ", " "%88, %89, %90, %91"
#define DG_O_92(c) DG_O_88(c), DG_O(c, 88)
#define DG_D_96 DG_D_92 ", " "%92, %93, %94, %95"
#define DG_O_96(c) DG_O_92(c), DG_O(c, 92)
#define DG_D_100 DG_D_96 ", " "%96, %97, %98, %99"
#define DG_O_100(c) DG_O_96(c), DG_O(c, 96)
#define DG_D_104 DG_D_100 ", " "%100, %101, %102, %103"
#define DG_O_104(c) DG_O_100(c), DG_O(c, 100)
#define DG_D_108 DG_D_104 ", " "%104, %105, %106, %107"
#define DG_O_108(c) DG_O_104(c), DG_O(c, 104)
#define DG_D_112 DG_D_108 ", " "%108, %109, %110, %111"
#define DG_O_112(c) DG_O_108(c), DG_O(c, 108)
#define DG_D_116 DG_D_112 ", " "%112, %113, %114, %115"
#define DG_O_116(c) DG_O_112(c), DG_O(c, 112)
#define DG_D_120 DG_D_116 ", " "%116, %117, %118, %119"
#define DG_O_120(c) DG_O_116(c), DG_O(c, 116)
#define DG_D_124 DG_D_120 ", " "%120, %121, %122, %123"
#define DG_O_124(c) DG_O_120(c), DG_O(c, 120)
#define DG_D_128 DG_D_124 ", " "%124, %125, %126, %127"
#define DG_O_128(c) DG_O_124(c), DG_O(c, 124)
// clang-format on
